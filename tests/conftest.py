"""Settings for all tests."""

import gc
import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Tests run beside each other and on small matrices: threads of BLAS only get in each other's way.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A change is judged by the same examples each time, and never by how busy the machine is.
# FEDECADO_EXPLORE=1 draws new examples instead, to look for what nobody thought of.
settings.register_profile(
    "same", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("explore" if os.environ.get("FEDECADO_EXPLORE") else "same")


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """A command run in this process sets logging up for itself; the next test starts without it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True)
def own_garbage() -> Iterator[None]:
    """A command run in this process has what is there by then never collected; after the test it may be."""
    yield
    gc.unfreeze()
