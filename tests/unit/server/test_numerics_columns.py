"""Passes over columns: every column once, in order, with BLAS held at one thread."""

import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.server.numerics import columns
from fedecado.server.numerics.columns import STRIPE, blocks, over_columns


@given(size=st.integers(0, 5 * STRIPE), width=st.integers(1000, 2 * STRIPE))
def test_stripes_and_their_blocks_cover_every_column_once(size: int, width: int) -> None:
    stripes = over_columns(size, lambda stripe: list(blocks(stripe, width)))
    position = 0
    for block in (block for stripe in stripes for block in stripe):
        assert block.start == position
        assert 0 < block.stop - block.start <= width
        position = block.stop
    assert position == size


def test_an_error_in_a_stripe_reaches_the_caller() -> None:
    def work(stripe: slice) -> None:
        if stripe.start > 0:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        over_columns(3 * STRIPE, work)


def test_an_error_in_a_helper_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_threads", lambda: 2)
    caller, failed = threading.get_ident(), threading.Event()

    def work(stripe: slice) -> None:
        if threading.get_ident() != caller:
            failed.set()
            raise IndexError("no")
        assert failed.wait(60)

    with pytest.raises(IndexError, match="no"):
        over_columns(3 * STRIPE, work)


def test_a_helper_that_never_came_to_it_holds_no_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else their memory would come back some time later, and the next vector would take fresh pages."""
    monkeypatch.setattr(columns, "_threads", lambda: 2)
    go, vector = threading.Event(), np.zeros(1)
    held = weakref.ref(vector)

    def work(stripe: slice, vector: npt.NDArray[np.float64] = vector) -> None:
        vector += 1

    with ThreadPoolExecutor(1) as busy:
        busy.submit(go.wait, 60)
        monkeypatch.setattr(columns, "_pool", lambda: busy)
        try:
            over_columns(3 * STRIPE, work)
            assert vector == [3]
            del work, vector
            assert held() is None
        finally:
            go.set()


def test_helpers_that_never_come_to_it_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_threads", lambda: 2)
    go = threading.Event()
    with ThreadPoolExecutor(1) as busy:
        busy.submit(go.wait, 60)
        monkeypatch.setattr(columns, "_pool", lambda: busy)
        try:
            assert over_columns(3 * STRIPE, lambda stripe: stripe.start) == [0, STRIPE, 2 * STRIPE]
        finally:
            go.set()


@pytest.mark.parametrize("size", [10, 3 * STRIPE])
def test_overflow_is_silent_inside(size: int) -> None:
    large = np.float32(3e38)
    assert all(np.isinf(value) for value in over_columns(size, lambda stripe: large * large))


HELD = """
import threading, numpy
from threadpoolctl import threadpool_info
from fedecado.server.numerics.columns import over_columns
first = threading.Thread(target=over_columns, args=(10, print))
first.start(); first.join(); over_columns(10, print)
print([library["num_threads"] for library in threadpool_info() if "numpy" in library["filepath"]])
"""


def test_blas_is_held_at_one_thread_whichever_thread_comes_first() -> None:
    """In a process of its own: the tests' setting is one thread anyway."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", HELD], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] in {"[1]", "[]"}  # nothing is listed where numpy brings no BLAS
