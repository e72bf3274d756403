"""The sum of many vectors in float64, a block of columns at a time."""

from typing import Final

import numpy as np

from fedecado.common.layout import Vector
from fedecado.server.numerics.circuit import Floats
from fedecado.server.numerics.columns import apart

ROWS: Final = 11
"""Vectors that are added up at once: a sum, and what five others were and have become."""


class Tally:
    """Vectors written out in float64 until they are added up, all of them by one call of BLAS.

    Float32 is exact there, so the sum of n vectors is off by n 2^-53 of their absolute values at most. To add
    them one by one takes a fourth longer: each would read the sum and write it back.
    """

    def __init__(self, width: int) -> None:
        """For blocks of up to so many columns."""
        self._rows = apart(ROWS, width, np.float64)
        self._signs = np.empty(ROWS)
        self._held = 0

    def room(self, vectors: int) -> bool:
        """Whether so many more can be held."""
        return self._held + vectors <= ROWS

    def add(self, vector: Vector, sign: float = 1.0) -> None:
        """Take in one more, which may change afterwards."""
        self._rows[self._held, : len(vector)] = vector
        self._signs[self._held] = sign
        self._held += 1

    def total(self, out: Floats) -> None:
        """Write down the sum of those that are held, and let go of them."""
        signs, rows = self._signs[: self._held], self._rows[: self._held, : len(out)]
        self._held = 0
        if len(rows) == 1:  # which matmul does not hand to BLAS
            np.multiply(signs[0], rows[0], out=out)
        else:
            np.matmul(signs, rows, out=out)
