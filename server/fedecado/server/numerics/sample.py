"""A seeded sample of the coordinates of long rows, one of every group, for their inner products.

Inner products serve norms only: the truncation error that picks the steps, and the rate at which the centre
moves. Over all d coordinates they would cost more than all else that the centre does. On m of them, one of
every g = d / m, the mean square of a combination y is unbiased, with a relative standard error of at most

    sqrt((K - 1) (1 - 1/g) / m),    K = mean(y^4) / mean(y^2)^2,

half of that for its root. What counts is m, not the share of d: groups of two to eight neighbours give 2^17
to 2^18 up to two million parameters, and beyond that groups double with d, so m stays between 2^18 and 2^19.
Values that scatter like a normal distribution (K = 3) give 0.2 % at the most, and 0.14 % from two million on;
tails as heavy as K = 100 give 1.3 % and 0.9 %. Steps are halved or doubled at errors that differ by a factor
of 4. Results do not pass through here: the new centre and the flows are formed from all coordinates.

One coordinate is drawn from each group, so that every layer is seen in proportion; the draw is the same in
every process, so that a recovered run takes the same steps.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedecado.common.layout import Vector
from fedecado.server.numerics.circuit import Floats

LEAST = 1 << 17
"""This many are drawn, or more."""
ENOUGH = 1 << 18
"""So many once a group has eight coordinates: more would say little that is new."""
LONG = 2 * LEAST
"""Rows shorter than this are taken in full."""


def group(size: int) -> int:
    """How many neighbours one coordinate stands for: a power of two, for stripes are made of groups."""
    return max(min(8, _power(size // LEAST)), _power(size // ENOUGH))


def _power(number: int) -> int:
    """The largest power of two that is not above a number of at least 1, or else 1."""
    return 1 << max(0, number.bit_length() - 1)


def width(size: int) -> int:
    """How many coordinates are drawn from rows of this size."""
    return -(-size // group(size)) if size >= LONG else 0


def place(size: int, stripe: slice) -> slice:
    """Where the sample of a stripe, which starts with a group, is in that of the row."""
    wide = group(size)
    return slice(stripe.start // wide, -(-stripe.stop // wide))


def drawn(row: Vector, stripe: slice) -> Vector:
    """The sample of a stripe."""
    # The indices are in range; to make sure of that takes longer.
    return row.take(picked(len(row))[place(len(row), stripe)], mode="clip")


def scale(size: int) -> float:
    """From a sum over the sample to one over all."""
    return size / width(size)


def bound(coefficients: Floats, squares: Floats) -> Floats:
    """No combination is longer than this: the lengths of its rows, added up."""
    return np.asarray(np.abs(coefficients) @ np.sqrt(squares))


@lru_cache(maxsize=2)
def picked(size: int) -> npt.NDArray[np.intp]:
    """The coordinates that are drawn from rows of this size."""
    starts = np.arange(0, size, group(size))
    offsets = np.random.default_rng(size).integers(0, group(size), len(starts))
    return np.asarray(np.minimum(starts + offsets, size - 1), np.intp)
