"""The passes over long float32 vectors, compiled, where a compiler was there when fedecado was installed.

numpy makes one pass per call, and blocks that stay in cache between calls take so many of them that
interpreter and memory are waited for in turns. `kernels.c` forms differences, combinations and sums in
registers, and asks for what it needs next ahead of time: all central work of a round takes half as long.

Everything else is done with numpy, and so is this where there is no library (`kernels()` is None), for other
dtypes and for vectors that do not lie in one piece. Results agree to the rounding of float32.
"""

import ctypes
import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fedecado.common.layout import Vector

Addresses = npt.NDArray[np.uintp]
"""A line per row: its vector, what is taken off it, and itself if it is float64; 0 for none."""

LIBRARY: Final = Path(__file__).with_name("kernels.so")
REVISION: Final = 1
"""Of the functions in kernels.c."""
PLACES: Final = 32
"""Numbers of a line of squares there."""
LEVELS: Final = ("plain", "avx2", "avx512")
"""Sets of instructions that there is code for."""

_log = logging.getLogger(__name__)
_Size, _Address = ctypes.c_size_t, ctypes.c_void_p


class Drawn(NamedTuple):
    """A sample of some columns."""

    picked: npt.NDArray[np.intp]
    """Which columns, in ascending order."""
    out: Vector
    """Where to write what is there."""


NONE: Final = Drawn(np.empty(0, np.intp), np.empty(0, np.float32))


class Kernels:
    """The library. Its functions work on some columns, give the interpreter up and keep nothing."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.levels: Final = LEVELS[: library.fedecado_levels()]
        """What this processor has, the best last."""
        self._use = library.fedecado_use
        self._room = _function(library.fedecado_room, _Size, _Size)
        self._measure = _function(
            library.fedecado_measure, ctypes.c_double, _Address, _Size, _Size, _Address, _Address
        )
        self._combine = _function(
            library.fedecado_combine, None, _Address, _Size, _Address, _Size, _Size, _Address, _Address
        )
        self._advance = _function(
            library.fedecado_advance,
            None,
            *(_Address, _Size, _Address, _Address, _Size, _Size),
            *(_Address, _Address, _Address, _Address),
        )
        self.use(self.levels[-1])

    def use(self, level: str) -> None:
        """Use these instructions from now on; by default the best that there are."""
        self.level = level
        self._use(LEVELS.index(level))

    def measure(
        self, rows: Addresses, slot: int, columns: slice, out: Vector | None = None, drawn: Drawn = NONE
    ) -> float:
        """Squared length of some columns of a row; written to `out`, a whole vector, if that is given.

        What was `drawn` of these columns is written to its place.
        """
        sample = np.array([len(drawn.picked), address(drawn.picked), address(drawn.out)], np.uintp)
        place = address(rows) + slot * rows.strides[0]
        return float(self._measure(place, columns.start, columns.stop, _address(out), address(sample)))

    def combine(
        self, rows: Addresses, weights: Vector, columns: slice, onto: Vector | None, out: Vector
    ) -> None:
        """Write the weighted sum of rows to some columns of `out`, added to those of `onto`."""
        self._combine(
            *(address(rows), len(rows), address(weights), columns.start, columns.stop),
            *(_address(onto), address(out)),
        )

    def advance(self, rows: Addresses, to: "Advance", columns: slice) -> list[float]:
        """Change some columns of every client's vector and of their sum; their squared lengths."""
        squares = np.zeros((len(to.places), PLACES))
        room = np.empty(self._room(len(rows) + to.products), np.float32)
        self._advance(
            *(address(rows), len(rows), address(to.changes), address(to.places)),
            *(columns.start, columns.stop, _address(to.total), address(to.moved)),
            *(address(squares), address(room)),
        )
        found: list[float] = squares[:, 0].tolist()
        return found


class Packed(NamedTuple):
    """A combination of rows per client."""

    shares: Vector
    """A line per client: its share of every row, or of every line of `factors`."""
    factors: Vector | None = None
    """Combinations of rows that clients share."""
    own: Vector | None = None
    """How much more each has of up to two rows,"""
    slots: npt.NDArray[np.intp] | None = None
    """and of which; -1 for none."""


class Advance:
    """Where clients' vectors are, where to write what comes after them, and what they change by."""

    def __init__(
        self,
        by: Packed,
        before: Sequence[Vector | None],
        after: Sequence[Vector],
        total: Vector | None,
        moved: Vector,
    ) -> None:
        """Without a `total` nobody else's vectors are in `moved`, their sum."""
        self._by, self.total, self.moved = by, total, moved
        self.products = 0 if by.factors is None else len(by.factors)
        parts = [_address(part) or 0 for part in by]
        self.changes = np.array([*by.shares.shape, *parts], np.uintp)
        places = [(_address(was) or 0, address(becomes)) for was, becomes in zip(before, after, strict=True)]
        self.places = np.array(places, np.uintp)


@cache
def kernels() -> Kernels | None:
    """The library, if it was compiled for this version and can be loaded."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
        revision = library.fedecado_revision()
    except (OSError, AttributeError) as error:
        if LIBRARY.exists():
            _log.warning("compiled passes do not load, so numpy computes: %s; install fedecado again", error)
        return None
    if revision != REVISION:
        _log.warning(
            "compiled passes are of revision %d instead of %d, so numpy computes; install fedecado again",
            *(revision, REVISION),
        )
        return None
    return Kernels(library)


def table(rows: Sequence[tuple[Vector, Vector | None]]) -> Addresses | None:
    """Where vectors and what is taken off them are; None if one of them is not as the passes need it.

    The caller keeps them.
    """
    places = []
    for vector, less in rows:
        if in_place(vector) and (less is None or in_place(less)):
            places.append((address(vector), _address(less) or 0, 0))
        elif less is None and in_place(vector, np.float64):
            places.append((0, 0, address(vector)))
        else:
            return None
    return np.array(places, np.uintp)


def in_place(vector: Vector, dtype: npt.DTypeLike = np.float32) -> bool:
    """Whether a vector lies in one piece, as numbers of this kind."""
    return vector.dtype == dtype and vector.flags.c_contiguous and vector.flags.aligned


def address(array: npt.NDArray[Any]) -> int:
    return array.ctypes.data


def _address(array: npt.NDArray[Any] | None) -> int | None:
    return None if array is None else array.ctypes.data


def _function(function: Any, result: Any, *arguments: Any) -> Any:
    function.restype, function.argtypes = result, arguments
    return function
