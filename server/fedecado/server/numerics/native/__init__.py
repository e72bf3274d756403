"""The passes over float32 vectors, compiled, where a compiler was there when fedecado was installed.

numpy makes one pass per call, and blocks that stay in cache between calls take so many of them that
interpreter and memory are waited for in turns. `kernels.c` forms differences, combinations and sums in
registers, and asks for what it needs next ahead of time: all central work of a round takes half as long.

Everything else is done with numpy, and so is this where there is no library (`kernels()` is None), for other
dtypes and for vectors that do not lie in one piece. Results agree to the rounding of float32.
"""

import ctypes
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from struct import pack
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fedecado.common.layout import Vector
from fedecado.server.numerics.circuit import Floats

FLOAT32: Final = np.dtype(np.float32)
FLOAT64: Final = np.dtype(np.float64)

LIBRARY: Final = Path(__file__).with_name("kernels.so")
REVISION: Final = 3
"""Of the functions in kernels.c."""
PLACES: Final = 32
"""Numbers of a line of squares there."""
LEVELS: Final = ("plain", "avx2", "avx512")
"""Sets of instructions that there is code for."""

_log = logging.getLogger(__name__)
_Size, _Address = ctypes.c_size_t, ctypes.c_void_p
_nothing_of = (ctypes.c_char * 0).from_buffer
_address_of = ctypes.addressof


class Table(NamedTuple):
    """Where rows are. Whoever has it keeps the rows."""

    rows: int
    places: bytes
    """For each its vector, what is taken off it, and itself if it is float64; 0 for none."""

    def row(self, slot: int) -> bytes:
        """The places of one."""
        return self.places[24 * slot : 24 * slot + 24]


class Drawn(NamedTuple):
    """A sample of some columns."""

    picked: npt.NDArray[np.intp]
    """Which columns, in ascending order."""
    out: Vector
    """Where to write what is there."""


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
        self._held = by, before, after, total, moved
        self.clients = len(after)
        self.products = 0 if by.factors is None else len(by.factors)
        places = [*by.shares.shape, *map(_place, by), _place(total), address(moved)]
        for was, becomes in zip(before, after, strict=True):
            places += [_place(was), address(becomes)]
        self.changes = _packed(places)


NONE: Final = Drawn(np.empty(0, np.intp), np.empty(0, np.float32))


class Kernels:
    """The library. Its functions work on some columns, give the interpreter up and keep nothing."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.levels: Final = LEVELS[: library.fedecado_levels()]
        """What this processor has, the best last."""
        self._use = library.fedecado_use
        self._room = _function(library.fedecado_room, _Size, _Size, _Size)
        self._take = _function(library.fedecado_take, ctypes.c_double, _Address, _Address, _Size)
        self._measure = _function(
            library.fedecado_measure, ctypes.c_double, _Address, _Size, _Size, _Address, _Address
        )
        self._gather = _function(library.fedecado_gather, None, _Address, _Size, _Size, _Address, _Address)
        self._combine = _function(
            library.fedecado_combine, None, _Address, _Size, _Address, _Size, _Size, _Address, _Address
        )
        self._advance = _function(
            library.fedecado_advance, None, _Address, _Size, _Address, _Size, _Size, _Address
        )
        self._round = _function(library.fedecado_round, ctypes.c_int, _Address, _Address, _Address, _Address)
        self.use(self.levels[-1])

    def use(self, level: str) -> None:
        """Use these instructions from now on; by default the best that there are."""
        self.level = level
        self._use(LEVELS.index(level))

    def take(self, data: memoryview, place: npt.NDArray[np.uint8]) -> float:
        """Copy float32 numbers, as they came, to where they stay; their squared length."""
        source = np.frombuffer(data, np.uint8)
        return float(self._take(source.ctypes.data, address(place), len(source) // FLOAT32.itemsize))

    def measure(
        self, rows: Table, slot: int, columns: slice, out: Vector | None = None, drawn: Drawn = NONE
    ) -> float:
        """Squared length of some columns of a row; written to `out`, a whole vector, if that is given.

        What was `drawn` of these columns is written to its place.
        """
        sample = _packed([len(drawn.picked), address(drawn.picked), address(drawn.out)])
        square = self._measure(rows.row(slot), columns.start, columns.stop, _place(out), sample)
        return float(square)

    def gather(self, rows: Table, out: Vector) -> Floats:
        """Write short rows to those of `out`, which lie in one piece; the inner products of all of them."""
        products = np.empty((rows.rows, rows.rows))
        self._gather(rows.places, rows.rows, out.shape[1], address(out), address(products))
        return products

    def combine(self, rows: Table, weights: Vector, columns: slice, onto: Vector | None, out: Vector) -> None:
        """Write the weighted sum of rows to some columns of `out`, added to those of `onto`."""
        first, last = columns.start, columns.stop
        self._combine(rows.places, rows.rows, address(weights), first, last, _place(onto), address(out))

    def advance(self, rows: Table, to: Advance, columns: slice) -> list[float]:
        """Change some columns of every client's vector and of their sum; their squared lengths."""
        room = np.empty(self._room(rows.rows + to.products, to.clients))
        self._advance(rows.places, rows.rows, to.changes, columns.start, columns.stop, address(room))
        found: list[float] = room[: PLACES * to.clients : PLACES].tolist()
        return found

    def round(self, knobs: bytes, of: bytes, rows: Vector, told: Floats) -> bool:
        """A round of short vectors, whole, as `short` packs it; false if it has to be computed otherwise.

        `rows` is room for the sum of the flows and all displacements. `told` receives what there is to tell.
        """
        return bool(self._round(knobs, of, address(rows), address(told)))


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


def taking(dtype: str) -> Callable[[memoryview, npt.NDArray[np.uint8]], float] | None:
    """What `Receiver` copies numbers of this kind with; none where numpy does."""
    compiled = kernels() if dtype == "float32" and sys.byteorder == "little" else None
    return None if compiled is None else compiled.take


def table(rows: Iterable[tuple[Vector, Vector | None]]) -> Table | None:
    """Where vectors and what is taken off them are; None if one of them is not as the passes need it."""
    places: list[int] = []
    for vector, less in rows:
        if in_place(vector) and (less is None or in_place(less)):
            places += (address(vector), _place(less), 0)
        elif less is None and in_place(vector, FLOAT64):
            places += (0, 0, address(vector))
        else:
            return None
    return Table(len(places) // 3, _packed(places))


def written(rows: Vector) -> Table:
    """Where rows are that lie one behind the other."""
    first, apart, places = address(rows), rows.strides[0], [0] * (3 * len(rows))
    places[::3] = range(first, first + apart * len(rows), apart)
    return Table(len(rows), _packed(places))


def in_place(vector: Vector, dtype: "np.dtype[Any]" = FLOAT32) -> bool:
    """Whether a vector lies in one piece, as numbers of this kind."""
    flags = vector.flags
    return vector.dtype == dtype and flags.c_contiguous and flags.aligned


def address(array: npt.NDArray[Any]) -> int:
    """Of an array in one piece."""
    if array.flags.writeable:  # a fourth of the time
        return _address_of(_nothing_of(array))  # type: ignore[arg-type] # numpy before 2 does not say so
    return array.ctypes.data


def _place(array: npt.NDArray[Any] | None) -> int:
    return 0 if array is None else address(array)


def _packed(places: list[int]) -> bytes:
    return pack(f"{len(places)}N", *places)


def _function(function: Any, result: Any, *arguments: Any) -> Any:
    function.restype, function.argtypes = result, arguments
    return function
