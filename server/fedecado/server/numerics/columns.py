"""Passes over long vectors: by column blocks that stay in cache, shared with a few threads.

A pass is cut into stripes, and stripes into blocks, whose sizes do not depend on the machine; partial
results come back in stripe order. So sums have the same bits on one core and on many.

BLAS is held at one thread. Its own threads meet at a spinning barrier in every call, which on
blocks of this size costs more than it saves, and a hundredfold when other processes want the cores.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped] # ships no type information

R = TypeVar("R")

BLOCK = 32_768
"""Columns handled at a time: long enough to hide the cost of a call, short enough to stay in cache."""
LONG_BLOCK = 4 * BLOCK
"""The same where a pass makes several calls on a block.

Each gives the interpreter up and has to get it back from another thread. On blocks that the inner cache
holds, two threads take as long as one.
"""
STRIPE = 8 * BLOCK
"""Columns of one unit of work; short enough that threads finish together."""
LINES = 272
"""Numbers between two rows, no power of two: some lines of a cache."""
MAX_THREADS = 4
"""Beyond a few threads the memory is the limit."""


def over_columns(size: int, work: Callable[[slice], R]) -> list[R]:
    """`work` with numpy on each stripe of `size` columns; see `striped`.

    Overflow gives infinity without a warning: callers judge the results.
    """

    def quietly(stripe: slice) -> R:
        with np.errstate(over="ignore", invalid="ignore"):
            return work(stripe)

    hold_blas()
    return striped(size, quietly)


def striped(size: int, work: Callable[[slice], R]) -> list[R]:
    """`work` on each stripe of `size` columns, in this thread and in helpers; results in stripe order."""
    if size <= STRIPE:
        return [work(slice(0, size))] if size else []

    left, held = deque(range(0, size, STRIPE)), [work]
    results: dict[int, R] = {}

    def share() -> None:
        while True:
            try:
                at = left.popleft()
            except IndexError:
                return
            results[at] = held[0](slice(at, min(at + STRIPE, size)))

    helpers = [_pool().submit(share) for _ in range(min(_threads(), len(left)) - 1)]
    try:
        share()
    finally:
        left.clear()
        # One that has had no core until now is not waited for: where others compute, that takes long.
        begun = [helper for helper in helpers if not helper.cancel()]
        wait(begun)
        held.clear()  # the pool may hold on to `share` for a while, but not to what the work refers to
    for helper in begun:
        helper.result()
    return [results[at] for at in range(0, size, STRIPE)]


def summed(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """What the stripes of a pass come to; short vectors have one, which needs no sum."""
    return parts[0] if len(parts) == 1 else np.asarray(np.sum(np.asarray(parts), axis=0))


def added(parts: Sequence[list[float]]) -> list[float]:
    """The same where a stripe comes to a few numbers."""
    return parts[0] if len(parts) == 1 else [sum(part) for part in zip(*parts, strict=True)]


def squared(vector: npt.NDArray[Any]) -> float:
    """Squared length, added up in float64 by blocks; of a stripe in one call."""
    if len(vector) < BLOCK:
        return float(vector.dot(vector))
    even = len(vector) - len(vector) % BLOCK
    rest = vector[even:]
    square = float(np.dot(rest, rest))
    if even:
        parts = vector[:even].reshape(-1, 1, BLOCK)
        square += float(np.matmul(parts, parts.swapaxes(1, 2)).sum(dtype=np.float64))
    return square


def blocks(stripe: slice, width: int = BLOCK) -> Iterator[slice]:
    """The blocks of a stripe, `width` columns each."""
    for at in range(stripe.start, stripe.stop, width):
        yield slice(at, min(at + width, stripe.stop))


def apart(rows: int, width: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A small array for blocks of columns, whose rows do not share the same lines of the cache.

    Those of a power of two do: a dozen of them drive each other out of it.
    """
    return np.empty((rows, width + LINES), dtype)[:, :width]


def fast_width(multiplications: int) -> int:
    """Columns that BLAS multiplies twice as fast, with its kernel for up to a million products; 0 if few."""
    return 1_000_000 // multiplications // 1024 * 1024


@cache
def hold_blas() -> None:
    """Hold BLAS at one thread from now on, in the whole process.

    Not for the length of a pass: the setting belongs to the process, and passes of several threads overlap.
    """
    ThreadpoolController().limit(limits=1, user_api="blas")


def _threads() -> int:
    return min(MAX_THREADS, len(os.sched_getaffinity(0)))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_THREADS - 1, thread_name_prefix="columns")


# A forked child has the executor but not its threads.
os.register_at_fork(after_in_child=_pool.cache_clear)
