"""Tests of what is compiled, on every set of instructions that this processor has."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fedecado.server.numerics import native
from fedecado.server.numerics.native import Kernels


@contextmanager
def using(level: str) -> Iterator[Kernels]:
    """The library with these instructions; skips the test where there is no code for them."""
    found = native.kernels()
    if found is None:
        pytest.skip("fedecado was installed without a C compiler")
    if level not in found.levels:
        pytest.skip(f"this processor has no {level}")
    used = found.level
    found.use(level)
    try:
        yield found
    finally:
        found.use(used)
