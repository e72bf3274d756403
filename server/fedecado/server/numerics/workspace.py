"""Large arrays kept from round to round: touching fresh memory costs more than computing in it."""

import numpy as np
import numpy.typing as npt

from fedecado.common.layout import Vector


class Workspace:
    """Keeps the array given back last, for the next one who asks for a like or smaller one."""

    def __init__(self) -> None:
        self._spare: Vector | None = None

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
