"""The rows of a basis: written down as one array, or formed from the vectors they follow from.

Long rows are not written down. A row is then the two vectors that it is the difference of, and its columns
are formed in cache where they are needed. That takes no memory beside the updates themselves. Shorter ones
are written down, since they are read twice, and to form a row takes longer than to read it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fedecado.common.layout import Vector
from fedecado.server.numerics import native, sample
from fedecado.server.numerics.circuit import Floats
from fedecado.server.numerics.columns import (
    BLOCK,
    LONG_BLOCK,
    added,
    apart,
    blocks,
    over_columns,
    squared,
    striped,
    summed,
)
from fedecado.server.numerics.finite import require_finite
from fedecado.server.numerics.gram import FEW, Gram
from fedecado.server.numerics.native import NONE, Drawn, Table, table, written
from fedecado.server.numerics.workspace import Workspace

FORMED_BYTES: Final = 64 << 20
"""From this length on rows are formed when they are needed."""
FORMED_ROWS: Final = 16
"""So many are formed in long blocks, which the outer cache holds."""


class Row(NamedTuple):
    """A vector, or its difference from another; neither changes while the row is used."""

    kind: str
    """What it is, in words."""
    vector: Vector
    less: Vector | None = None

    def form(self, columns: slice, out: Vector) -> Vector:
        """Write some columns to `out`."""
        if self.less is None:
            np.copyto(out, self.vector[columns], "same_kind")
            return out
        return np.subtract(self.vector[columns], self.less[columns], out=out, casting="same_kind")

    def draw(self, stripe: slice, out: Vector) -> None:
        """Write the sample of a stripe to its place in `out`."""
        place, drawn = out[sample.place(len(self.vector), stripe)], sample.drawn(self.vector, stripe)
        if self.less is None:
            np.copyto(place, drawn, "same_kind")
        else:
            np.subtract(drawn, sample.drawn(self.less, stripe), out=place, casting="same_kind")


class Rows:
    """Rows by slot."""

    def __init__(
        self, size: int, dtype: npt.DTypeLike, *, capacity: int, sampled: bool, workspace: Workspace
    ) -> None:
        """With `sampled` inner products are going to be taken."""
        self.size, self.dtype, self._workspace = size, np.dtype(dtype), workspace
        self._compiled = native.kernels() if self.dtype == np.float32 else None
        self._made_of: list[Row] | None = [] if self._formed_from(size) else None
        self._written = size if self._made_of is None else 0
        samples = sample.width(size) if sampled else 0
        self._count = 0
        self._table: Table | None = None
        # Rows never touched cost no memory, growing copies all of them.
        self._store = workspace.take(capacity, self._written + samples, self.dtype)
        """A row, if it is written down, and its sample behind it, if one is taken."""

    def _formed_from(self, size: int) -> bool:
        """Whether rows are formed when they are needed; those of which products are taken in full are not."""
        if self._compiled is not None and size >= sample.LONG:
            return True
        return size * self.dtype.itemsize >= FORMED_BYTES

    @property
    def capacity(self) -> int:
        """For how many there is room."""
        return len(self._store)

    @property
    def width(self) -> int:
        """Columns of a block that are best worked on at once; fewer of many rows that have to be formed."""
        if self._made_of is None or self._count <= FORMED_ROWS:
            return LONG_BLOCK
        return max(4096, FORMED_ROWS * LONG_BLOCK // self._count)

    @property
    def samples(self) -> Vector | None:
        """A sample of each, where they are long."""
        found = self._store[: self._count, self._written :]
        return found if found.shape[1] else None

    def block(self, columns: slice, room: Vector | None = None) -> Vector:
        """Some columns of all rows, to read only; formed in `room` where they are not written down."""
        if self._made_of is None:
            return self._store[: self._count, columns]
        width = _width(columns)
        formed = np.empty((self._count, width), self.dtype) if room is None else room[:, :width]
        for row, out in zip(self._made_of, formed, strict=True):
            row.form(columns, out)
        return formed

    def room(self, width: int) -> Vector | None:
        """For blocks of up to so many columns."""
        return None if self._made_of is None else apart(self._count, width, self.dtype)

    def table(self) -> Table | None:
        """Where the rows are, for the compiled passes; None where these cannot be used."""
        if self._compiled is None:
            return None
        if self._table is None or self._table.rows != self._count:
            made_of, store = self._made_of, self._store
            formed = None if made_of is None else table((row.vector, row.less) for row in made_of)
            self._table = written(store[: self._count]) if made_of is None else formed
        return self._table

    def row(self, slot: int) -> Vector:
        """One row, to read only."""
        if self._made_of is None:
            return self._store[slot, : self.size]
        return self._formed(self._made_of[slot])

    def add(self, rows: Sequence[Row], gram: Gram | None = None) -> list[float]:
        """Take new rows in, all or none; their squared lengths. Raises if one is not finite.

        Where that costs little their inner products are taken along, for `gram`.
        """
        self._reserve(self._count + len(rows))
        products = None if gram is None or self._count else self._multiplied(rows)
        squares = self._measured(rows) if products is None else products.diagonal().tolist()
        self._require_finite(rows, squares)
        self._count += len(rows)
        if self._made_of is not None:
            self._made_of += rows
        if gram is not None and products is not None:
            gram.take(products)
        return squares

    def follow(self, rows: Sequence[Row]) -> bool:
        """Take rows in that are only to be formed, where rows are: without their lengths and samples."""
        if self._made_of is None:
            return False
        self._made_of += rows
        self._count += len(rows)
        return True

    def measure(self, slots: Sequence[int]) -> list[float]:
        """Squared lengths of rows that only followed. Raises if one is not finite."""
        assert self._made_of is not None  # noqa: S101 - nobody follows where rows are written down
        rows = [self._made_of[slot] for slot in slots]
        squares = self._measured(rows)
        self._require_finite(rows, squares)
        return squares

    def rewrite(self, slots: Sequence[int], change: Callable[[Vector, slice], object]) -> list[float]:
        """Let `change` alter some rows, block by block of columns; the squared lengths of all."""
        own = [self._own(slot) for slot in slots]

        def work(stripe: slice) -> Vector:
            squares = np.zeros(self._count)
            for columns in blocks(stripe):
                rows = self.block(columns)
                altered = rows[slots]
                change(altered, columns)
                for slot, row, out in zip(slots, altered, own, strict=True):
                    rows[slot] = out[columns] = row
                squares += np.einsum("ij,ij->i", rows, rows)
            return squares

        squares: list[float] = summed(over_columns(self.size, work)).tolist()
        for slot, vector in zip(slots, own, strict=True):
            row = Row("altered row", vector)
            self._draw(slot, row)
            if self._made_of is not None:
                self._made_of[slot] = row
        self._table = None
        return squares

    def release(self) -> None:
        """Give the memory back to the workspace; the rows are gone."""
        self._workspace.give(self._store)
        self._store, self._count, self._table = self._store[:0], 0, None
        if self._made_of is not None:
            self._made_of = []

    def _require_finite(self, rows: Sequence[Row], squares: Sequence[float]) -> None:
        for row, square in zip(rows, squares, strict=True):
            if not math.isfinite(square):
                require_finite(self._formed(row), square, row.kind)

    def _multiplied(self, rows: Sequence[Row]) -> Floats | None:
        """Inner products of the first rows, which are written down, if they are few and short."""
        if self._compiled is None or self.size > BLOCK or len(rows) > FEW:
            return None
        places = table([(row.vector, row.less) for row in rows])
        return None if places is None else self._compiled.gather(places, self._store[: len(rows)])

    def _measured(self, rows: Sequence[Row]) -> list[float]:
        """Squared lengths of new rows; they are written down, or their samples, while they are in cache."""
        first, written = self._count, self._made_of is None
        places = table([(row.vector, row.less) for row in rows]) if self._compiled else None
        if self._compiled and places is not None:
            measure, out = self._compiled.measure, self._store[first:] if written else [None] * len(rows)
            return added(
                striped(
                    self.size,
                    lambda stripe: [
                        measure(places, i, stripe, out[i], self._drawn(first + i, stripe))
                        for i in range(len(rows))
                    ],
                )
            )
        samples = self._store[:, self._written :]

        def work(stripe: slice) -> list[float]:
            squares, room = [], np.empty(0 if written else _width(stripe), self.dtype)
            for i, row in enumerate(rows):
                # The whole stripe: for two calls on a block the outer cache is near enough.
                formed = row.form(stripe, self._store[first + i, stripe] if written else room)
                squares.append(squared(formed))
            for i, row in enumerate(rows) if samples.size else ():
                # What is written down is in cache, and one vector.
                source = Row(row.kind, self._store[first + i, : self.size]) if written else row
                source.draw(stripe, samples[first + i])
            return squares

        return added(over_columns(self.size, work))

    def _drawn(self, slot: int, stripe: slice) -> Drawn:
        """What the compiled pass draws from a stripe."""
        if self._store.shape[1] == self._written:
            return NONE
        samples = self._store[slot, self._written :]
        place = sample.place(self.size, stripe)
        return Drawn(sample.picked(self.size)[place], samples[place])

    def _formed(self, row: Row) -> Vector:
        whole = self._workspace.vector(self.size, self.dtype)

        over_columns(self.size, lambda stripe: row.form(stripe, whole[stripe]))
        return whole

    def _own(self, slot: int) -> Vector:
        """Where to write a row that is no longer the difference of what came in."""
        if self._made_of is None:
            return self._store[slot, : self.size]
        return self._workspace.vector(self.size, self.dtype)

    def _draw(self, slot: int, row: Row) -> None:
        out = self._store[slot, self._written :]
        if len(out):
            over_columns(self.size, lambda stripe: row.draw(stripe, out))

    def _reserve(self, rows: int) -> None:
        if rows <= len(self._store):
            return
        grown = np.empty((max(4, rows, 3 * len(self._store) // 2), self._store.shape[1]), self.dtype)
        grown[: self._count] = self._store[: self._count]
        self._store, self._table = grown, None


def _width(columns: slice) -> int:
    return int(columns.stop - columns.start)
