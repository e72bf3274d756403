"""Passes over columns: every column once, in order, with BLAS held at one thread meanwhile."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped] # ships no type information

from fedecado.server.numerics.columns import STRIPE, blocks, one_blas_thread, over_columns


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


@pytest.mark.parametrize("size", [10, 3 * STRIPE])
def test_overflow_is_silent_inside(size: int) -> None:
    large = np.float32(3e38)
    assert all(np.isinf(value) for value in over_columns(size, lambda stripe: large * large))


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_blas_gets_its_threads_back_when_the_last_user_is_done() -> None:
    """Two passes that overlap do not restore each other's limit."""
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_blas_thread:
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with threadpool_limits(2, user_api="blas"):  # the tests' own setting is one thread
        with one_blas_thread:
            thread.start()
            assert inside.wait(10)
        assert set(blas_threads()) == {1}
        leave.set()
        thread.join()
        assert set(blas_threads()) == {2}
