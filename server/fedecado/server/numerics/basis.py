"""The few long vectors of a round, and their Gram matrix grown as updates arrive.

Everything the central solve computes is, in each of the d coordinates, the same linear
combination of: the balance of the flows (F), the displacements `x_i_end - x_i_start`, and, where a
client started from an older version, that version's offset from `x_c`. A `Basis` holds these rows in
one array; results are coefficients over them. The long vectors are touched when a row arrives (its
inner products) and when a result is formed, never in between.

Rows keep the dtype of the model; inner products are formed in blocks and summed in float64, so in
float32 a norm is good to about 1e-4 of the largest row. Those of very long rows are taken on a `sample`.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from fedecado.common.errors import LayoutError
from fedecado.common.layout import Vector
from fedecado.server.numerics import native, sample
from fedecado.server.numerics.advance import Vectors, advance
from fedecado.server.numerics.circuit import Floats
from fedecado.server.numerics.columns import blocks, over_columns, striped
from fedecado.server.numerics.gram import Gram
from fedecado.server.numerics.native import in_place
from fedecado.server.numerics.rows import Row, Rows
from fedecado.server.numerics.spread import Coefficients, Spread
from fedecado.server.numerics.workspace import Workspace


class Basis:
    """Rows over the d parameters, in order of arrival.

    The vectors that it is given must stay as they are until it is released.
    """

    def __init__(
        self,
        size: int,
        dtype: npt.DTypeLike,
        *,
        capacity: int = 0,
        gram: bool = False,
        measured: bool = True,
        workspace: Workspace | None = None,
    ) -> None:
        """With `gram` inner products are taken. Rows that are not `measured` are looked at when somebody asks
        for their lengths, if they are not written down; what is not finite shows in what is made of them.
        """
        self.size, self.dtype = size, np.dtype(dtype)
        self._workspace = workspace or Workspace()
        # Room for F and some offsets.
        room = capacity + 1 + min(capacity, 4)
        self._rows = Rows(size, dtype, capacity=room, sampled=gram, workspace=self._workspace)
        self._measured = measured or gram
        self._squares: list[float] = []
        """Of rows that nobody has looked at: NaN."""
        self._offset_slots: dict[int, int] = {}
        self._gram = Gram() if gram else None
        self.total_slot: int | None = None
        self.move_slots: list[int] = []

    @property
    def slots(self) -> int:
        """How many rows there are."""
        return len(self._squares)

    @property
    def rows(self) -> Vector:
        """All rows, by slot, to read only."""
        return self._rows.block(slice(0, self.size))

    def row(self, slot: int) -> Vector:
        """One row, to read only."""
        return self._rows.row(slot)

    def moves(self, columns: slice) -> Vector:
        """Some columns of all displacements, in order of arrival."""
        return np.asarray(self._rows.block(columns)[self.move_slots])

    @property
    def gram(self) -> Floats | None:
        """Inner products of all rows, if they are taken."""
        if self._gram is None:
            return None
        if self._gram.rows < self.slots:
            self._multiply(self._gram)
        return self._gram.products

    def offset_slot(self, version: int) -> int:
        return self._offset_slots[version]

    def set_total(self, F: Vector) -> None:
        """Give the flows that pull the centre while nothing changes: F, once."""
        self._push([Row("sum of flows", F)])
        self.total_slot = self.slots - 1

    def append(self, end: Vector, start: Vector, *, older: tuple[int, Vector] | None = None) -> None:
        """Add a client's displacement.

        `older` is (version, x_c) when the start is not x_c but an earlier version: its offset from x_c
        is added too, once per version. Raises without a trace if a vector has the wrong length or is
        not finite.
        """
        self.extend([(end, start, older)])

    def extend(
        self,
        moves: Sequence[tuple[Vector, Vector, tuple[int, Vector] | None]],
        total: Vector | None = None,
    ) -> None:
        """Add several displacements as `append` does, all or none, with one product for all of them.

        `total` is F, if it is not there yet. The inner products of many short rows cost less that way, and
        their last bits differ.
        """
        rows = [] if total is None else [Row("sum of flows", total)]
        offsets: dict[int, int] = {}
        slots = []
        for end, start, older in moves:
            for what, vector in (("end state", end), ("start state", start)):
                if vector.shape != (self.size,):
                    raise LayoutError(
                        f"{what} has shape {vector.shape}; the model has {self.size} parameters"
                    )
            if older and older[0] not in self._offset_slots and older[0] not in offsets:
                version, x_c = older
                offsets[version] = self.slots + len(rows)
                rows.append(Row("offset of the start", start, x_c))
            slots.append(self.slots + len(rows))
            rows.append(Row("displacement", end, start))
        self._push(rows)
        if total is not None:
            self.total_slot = self.slots - len(rows)
        self._offset_slots |= offsets
        self.move_slots += slots

    def follow(self, row: Row) -> int | None:
        """Add a row for `advance` alone, of which nothing is measured; its slot.

        None where rows are written down.
        """
        return self.slots if self._rows.follow([row]) else None

    def combine(self, coefficients: Floats, onto: Vector | None = None, out: Vector | None = None) -> Vector:
        """The rows weighted by `coefficients`, added to `onto` where given.

        It may overflow to infinity; callers judge the result. `out` is where to write it, which may be one of
        the vectors that rows are made of: all of a column is read before it is written.
        """
        weights = coefficients.astype(self.dtype)
        result = self._workspace.vector(self.size, self.dtype) if out is None else out
        compiled, table = native.kernels(), self._rows.table()
        if compiled and table is not None and (onto is None or in_place(onto)):
            striped(self.size, lambda stripe: compiled.combine(table, weights, stripe, onto, result))
        else:
            self._combine_by_blocks(weights, onto, result)
        return result

    def _combine_by_blocks(self, weights: Vector, onto: Vector | None, result: Vector) -> None:
        """The same with numpy."""
        width = self._rows.width

        def work(stripe: slice) -> None:
            room = self._rows.room(width)
            for columns in blocks(stripe, width):
                out, rows = result[columns], self._rows.block(columns, room)
                if len(rows) == 1:  # which matmul does not hand to BLAS: its own loop takes ten times as long
                    np.multiply(weights[0], rows[0], out=out)
                else:
                    np.matmul(weights, rows, out=out)
                if onto is not None:
                    out += onto[columns]

        over_columns(self.size, work)

    def advance(
        self,
        spread: Coefficients,
        vectors: Sequence[Vector | None],
        total: Floats,
        squares: list[float] | None = None,
        *,
        alone: bool = False,
    ) -> tuple[list[Vector], Floats]:
        """Each vector (None is zero) plus its combination of the rows, and their new total.

        What may be written to, vectors and total, is given up: the result takes its place. What is read-only
        stays as it is. `total` is float64. Vectors are taken out of it as they were and put in as they are
        stored now, so that it stays the sum of what is stored, to the last digits of float64 and however many
        rounds go by. Where these vectors are `alone` in it, it is the sum of the results. `squares` receives
        the squared lengths of the results, taken while they are in cache.
        """
        results = [self._successor(vector, self.dtype) for vector in vectors]
        moved: Floats = np.asarray(self._successor(total, np.float64), np.float64)
        found = advance(self._rows, spread, Vectors(vectors, results, None if alone else total, moved))
        if squares is not None:
            squares[:] = found
        return results, moved

    def _successor(self, vector: Vector | None, dtype: npt.DTypeLike) -> Vector:
        """Where to write what comes after a vector."""
        if vector is not None and vector.flags.writeable:
            return vector
        return self._workspace.vector(self.size, dtype)

    def norms(self, spread: Coefficients, *more: Floats, rms: bool = True) -> Floats:
        """Root mean square, or else the largest absolute value, of a spread's combinations and of `more`."""
        if (
            rms
            and isinstance(spread, Spread)
            and spread.few
            and self.size >= self.slots
            and (gram := self.gram) is not None
        ):
            return np.concatenate([self._rms(spread.squares(gram)), self.rms(np.asarray(more))])
        rows = spread.dense(*more)
        return self.rms(rows) if rms else self.peak(rows)

    def rms(self, coefficients: Floats) -> Floats:
        """Root mean square over the parameters of each combination, from the Gram matrix."""
        if self.size < self.slots:  # where the vectors themselves are less work, and exact
            return np.asarray(np.sqrt(np.mean(np.square(coefficients @ self.rows), axis=1)))
        gram = self.gram
        assert gram is not None  # noqa: S101 - a programming error, not an input
        return self._rms(((coefficients @ gram) * coefficients).sum(1))

    def _rms(self, squares: Floats) -> Floats:
        return np.asarray(np.sqrt(np.maximum(squares, 0.0) / self.size))

    def peak(self, coefficients: Floats) -> Floats:
        """Largest absolute value of each combination; passes over the long vectors."""
        weights, width = coefficients.astype(self.dtype), self._rows.width

        def work(stripe: slice) -> Floats:
            room = self._rows.room(width)
            formed = (self._rows.block(columns, room) for columns in blocks(stripe, width))
            peaks = [np.abs(weights @ rows).max(axis=1) for rows in formed]
            return np.asarray(np.max(peaks, axis=0), np.float64)

        return np.asarray(np.max(over_columns(self.size, work), axis=0))

    @property
    def sampled(self) -> bool:
        """Whether root mean squares are those of a sample, and so not exact."""
        return self._rows.samples is not None

    def bound(self, coefficients: Floats) -> Floats:
        """A length for each combination that it cannot exceed."""
        return sample.bound(coefficients, np.asarray(self._squares))

    def squares(self) -> list[float]:
        """Squared length of every displacement, in order of arrival; raises if one is not finite."""
        if due := [slot for slot in self.move_slots if math.isnan(self._squares[slot])]:
            for slot, square in zip(due, self._rows.measure(due), strict=True):
                self._squares[slot] = square
        return [self._squares[slot] for slot in self.move_slots]

    def rewrite(self, change: Callable[[Vector, slice], object]) -> None:
        """Let `change` alter the displacements, block by block of columns; products are formed anew."""
        self._squares = self._rows.rewrite(self.move_slots, change)
        self._gram = Gram() if self._gram is not None else None

    def release(self) -> None:
        """Give the memory back to the workspace; the rows are gone."""
        self._rows.release()
        self._squares.clear()

    def _push(self, rows: list[Row]) -> None:
        """Add rows, all or none: raise if one is found that is not finite."""
        if not self._measured and self._rows.follow(rows):
            self._squares += [math.nan] * len(rows)
            return
        self._squares += self._rows.add(rows, self._gram)
        if self._gram is not None and self._gram.is_due(self.slots):
            self._multiply(self._gram)

    def _multiply(self, gram: Gram) -> None:
        """Take the inner products of the rows that have none yet."""
        if (samples := self._rows.samples) is None:
            gram.grow(self.rows, 1.0, self._rows.capacity, self._squares)
        else:
            gram.grow(samples, sample.scale(self.size), self._rows.capacity)
