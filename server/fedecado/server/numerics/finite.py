"""Whether vectors are finite, and short enough to be squared in their dtype."""

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fedecado.common.errors import NonFiniteError
from fedecado.common.layout import Vector
from fedecado.server.numerics import native
from fedecado.server.numerics.columns import over_columns, squared, striped
from fedecado.server.numerics.native import in_place, table


def require_usable(vector: Vector) -> None:
    """Raise unless a state is finite and the difference of two like it can be squared in its dtype."""
    square = squared_length(vector)
    require_finite(vector, square if square < largest_square(vector.dtype) else math.inf, "state")


@cache
def largest(dtype: np.dtype[Any]) -> float:
    """The largest number of a dtype."""
    return float(np.finfo(dtype).max)


def largest_square(dtype: npt.DTypeLike) -> float:
    """Squared lengths below this leave room for the difference of two such vectors."""
    return largest(np.dtype(dtype)) / 8


def squared_length(vector: Vector) -> float:
    """Squared length, summed in float64; to the bit what `advance` finds for a vector that it writes."""
    compiled = native.kernels()
    if compiled and in_place(vector) and (row := table([(vector, None)])) is not None:
        return sum(striped(len(vector), lambda stripe: compiled.measure(row, 0, stripe)))
    return sum(over_columns(len(vector), lambda stripe: squared(vector[stripe])))


def require_finite(vector: Vector, square: float, kind: str) -> None:
    """A finite sum of squares proves every entry finite; only the failing case looks closer."""
    if math.isfinite(square):
        return
    bad = np.flatnonzero(~np.isfinite(vector))
    if len(bad):
        raise NonFiniteError(
            f"{len(bad)} of {len(vector)} values of the {kind} are NaN or infinite, the first at index "
            f"{bad[0]}; lower the learning rate or clip gradients on that client"
        )
    raise NonFiniteError(
        f"values of the {kind} up to {np.abs(vector).max():.3g} are too large to square in {vector.dtype}; "
        "lower the learning rate or clip gradients on that client"
    )
