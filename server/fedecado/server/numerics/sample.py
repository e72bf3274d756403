"""A seeded sample of the coordinates of long rows, one of every eight, for their inner products.

Inner products serve norms only: the truncation error that picks the steps, and the rate at which the centre
moves. Over all d coordinates they would cost more than all else that the centre does. On m = d / 8 of
them the mean square of a combination y is unbiased, with a relative standard error of at most

    sqrt((K - 1) (1 - 1/8) / m),    K = mean(y^4) / mean(y^2)^2,

half of that for its root: 0.2 % at a million parameters that scatter like a normal distribution
(K = 3), 1.3 % with tails as heavy as K = 100. Steps are halved or doubled at errors that differ by a
factor of 4. Results do not pass through here: the new centre and the flows are formed from all coordinates.

One coordinate is drawn from each group of eight neighbours, so that every layer is seen in proportion;
the draw is the same in every process, so that a recovered run takes the same steps.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedecado.common.layout import Vector
from fedecado.server.numerics.circuit import Floats

GROUP = 8
LONG = 1 << 20
"""Rows shorter than this are taken in full."""


def width(size: int) -> int:
    """How many coordinates are drawn from rows of this size."""
    return -(-size // GROUP) if size >= LONG else 0


def draw(row: Vector, stripe: slice, out: Vector) -> slice:
    """Copy the sample of a stripe, which starts with a group, to its place in `out`; where that is."""
    place = slice(stripe.start // GROUP, -(-stripe.stop // GROUP))
    # Any mode but "raise" writes to `out` directly; the indices are in range.
    row.take(_picked(len(row))[place], out=out[place], mode="clip")
    return place


def scale(size: int) -> float:
    """From a sum over the sample to one over all."""
    return size / width(size)


def bound(coefficients: Floats, squares: Floats) -> Floats:
    """No combination is longer than this: the lengths of its rows, added up."""
    return np.asarray(np.abs(coefficients) @ np.sqrt(squares))


@lru_cache(maxsize=2)
def _picked(size: int) -> npt.NDArray[np.intp]:
    starts = np.arange(0, size, GROUP)
    offsets = np.random.default_rng(size).integers(0, GROUP, len(starts))
    return np.asarray(np.minimum(starts + offsets, size - 1), np.intp)
