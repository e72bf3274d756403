"""Large arrays kept from round to round: touching fresh memory costs more than computing in it."""

from collections import defaultdict
from typing import Final

import numpy as np
import numpy.typing as npt

from fedecado.common.layout import Vector
from fedecado.common.spares import Spares

LONG: Final = 4 << 20
"""Bytes from which on a vector's memory is kept; the allocator knows what to do with shorter ones."""


class Workspace:
    """Keeps the matrix given back last, and the memory of long vectors that nobody refers to any more."""

    def __init__(self) -> None:
        self._spare: Vector | None = None
        # One kind each: those of another size would be thrown away.
        self._spares: defaultdict[int, Spares] = defaultdict(Spares)

    def take(self, rows: int, size: int, dtype: npt.DTypeLike) -> Vector:
        """An array of at least `rows` rows; its content is arbitrary."""
        spare, self._spare = self._spare, None
        if spare is not None and len(spare) >= rows and (spare.shape[1], spare.dtype) == (size, dtype):
            return spare
        del spare  # freed before its successor is allocated
        return np.empty((rows, size), dtype)

    def give(self, array: Vector) -> None:
        """Give an array back; nobody may use it any more."""
        self._spare = array

    def vector(self, size: int, dtype: npt.DTypeLike) -> Vector:
        """A vector of arbitrary content, whose memory comes back by itself when it is let go."""
        dtype = np.dtype(dtype)
        nbytes = size * dtype.itemsize
        if nbytes < LONG:
            return np.empty(size, dtype)
        return self._spares[nbytes].take(nbytes)[:nbytes].view(dtype)
