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

from fedecado.common.errors import LayoutError, NonFiniteError
from fedecado.common.layout import Vector
from fedecado.server.numerics import sample
from fedecado.server.numerics.circuit import Floats
from fedecado.server.numerics.columns import BLOCK, blocks, over_columns
from fedecado.server.numerics.workspace import Workspace

MANY = 32
"""So many rows at once are multiplied with each other as one matrix."""

_Fill = Callable[[slice, Vector], object]
"""Writes the given columns of a new row."""


class Basis:
    """Rows over the d parameters, in order of arrival."""

    def __init__(
        self,
        size: int,
        dtype: npt.DTypeLike,
        *,
        capacity: int = 0,
        gram: bool = False,
        workspace: Workspace | None = None,
    ) -> None:
        self.size, self.dtype = size, np.dtype(dtype)
        self._workspace = workspace or Workspace()
        # Room for F and some offsets: rows never touched cost no memory, growing copies all of them.
        # The sample of a row stands behind it.
        self._width = size + (sample.width(size) if gram else 0)
        self._store = self._workspace.take(capacity + 1 + min(capacity, 4), self._width, self.dtype)
        self._squares: list[float] = []
        self._offset_slots: dict[int, int] = {}
        self._gram: Floats | None = np.empty((0, 0)) if gram else None
        self.total_slot: int | None = None
        self.move_slots: list[int] = []

    @classmethod
    def unit(cls, size: int, dtype: npt.DTypeLike) -> "Basis":
        """The unit vectors: coefficients over them are vectors themselves."""
        basis = cls(size, dtype, capacity=size, gram=True)
        basis._store[:size] = np.eye(size)
        basis._squares, basis._gram = [1.0] * size, np.eye(size)
        return basis

    @property
    def slots(self) -> int:
        """How many rows there are."""
        return len(self._squares)

    @property
    def rows(self) -> Vector:
        """All rows, by slot."""
        return self._store[: self.slots, : self.size]

    @property
    def gram(self) -> Floats | None:
        """Inner products of all rows, if they are taken."""
        return None if self._gram is None else self._gram[: self.slots, : self.slots]

    def offset_slot(self, version: int) -> int:
        return self._offset_slots[version]

    def set_total(self, F: Vector) -> None:
        """Give the flows that pull the centre while nothing changes: F, once."""
        self._push([_total(F)])
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
        fills: list[tuple[str, _Fill]] = [] if total is None else [_total(total)]
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
                offsets[version] = self.slots + len(fills)
                fills.append(("offset of the start", _difference(start, x_c)))
            slots.append(self.slots + len(fills))
            fills.append(("displacement", _difference(end, start)))
        self._push(fills)
        if total is not None:
            self.total_slot = self.slots - len(fills)
        self._offset_slots |= offsets
        self.move_slots += slots

    def combine(self, coefficients: Floats, onto: Vector | None = None) -> Vector:
        """The rows weighted by `coefficients`, added to `onto` where given.

        It may overflow to infinity; callers judge the result.
        """
        weights, rows = coefficients.astype(self.dtype), self.rows
        result: Vector = np.empty(self.size, self.dtype)

        def work(stripe: slice) -> None:
            for columns in blocks(stripe):
                out = np.matmul(weights, rows[:, columns], out=result[columns])
                if onto is not None:
                    out += onto[columns]

        over_columns(self.size, work)
        return result

    def advance(
        self,
        coefficients: Floats,
        vectors: Sequence[Vector | None],
        total: Floats,
        squares: Floats | None = None,
    ) -> list[Vector]:
        """Each vector (None is zero) plus its combination of the rows, as new vectors.

        `total` is float64 and moves by the differences of the rounded results, so that it stays the
        exact sum of what is stored however many rounds go by. `squares` receives the squared lengths of
        the results, taken while they are in cache.
        """
        weights, rows = coefficients.astype(self.dtype), self.rows
        results: list[Vector] = [np.empty(self.size, self.dtype) for _ in vectors]
        # What is written between stays in cache; of short vectors, calls cost more than that.
        widest = self.size if self.size <= BLOCK else max(1024, 5 * BLOCK // max(10, len(results)))

        def work(stripe: slice) -> Floats:
            change, (new, old) = np.empty((len(results), widest), self.dtype), np.empty((2, widest))
            lengths = np.zeros(len(results))
            for columns in blocks(stripe, widest):
                width = columns.stop - columns.start
                np.matmul(weights, rows[:, columns], out=change[:, :width])
                for i, (before, result) in enumerate(zip(vectors, results, strict=True)):
                    after, exact = result[columns], new[:width]
                    if before is None:
                        after[:] = exact[:] = change[i, :width]
                    else:
                        # Two casts and a difference take half as long as one subtraction that casts.
                        np.add(before[columns], change[i, :width], out=after)
                        exact[:], old[:width] = after, before[columns]
                        exact -= old[:width]
                    if squares is not None:
                        lengths[i] += np.dot(after, after)
                    total[columns] += exact
            return lengths

        parts = over_columns(self.size, work)
        if squares is not None:
            np.sum(parts, axis=0, out=squares)
        return results

    def rms(self, coefficients: Floats) -> Floats:
        """Root mean square over the parameters of each combination, from the Gram matrix."""
        assert self.gram is not None  # noqa: S101 - a programming error, not an input
        squares = np.sum((coefficients @ self.gram) * coefficients, axis=1)
        return np.asarray(np.sqrt(np.maximum(squares, 0.0) / self.size))

    def peak(self, coefficients: Floats) -> Floats:
        """Largest absolute value of each combination; passes over the long vectors."""
        weights, rows = coefficients.astype(self.dtype), self.rows

        def work(stripe: slice) -> Floats:
            peaks = [np.abs(weights @ rows[:, columns]).max(axis=1) for columns in blocks(stripe)]
            return np.asarray(np.max(peaks, axis=0), np.float64)

        return np.asarray(np.max(over_columns(self.size, work), axis=0))

    def length(self, coefficients: Floats) -> Floats:
        """Length of each combination; where it is not known exactly, a bound that it cannot exceed."""
        if self._width > self.size:
            return sample.bound(coefficients, np.asarray(self._squares))
        return np.asarray(self.rms(coefficients) * math.sqrt(self.size))

    def squares(self) -> Floats:
        """Squared length of every displacement, in order of arrival."""
        return np.asarray([self._squares[slot] for slot in self.move_slots])

    def rewrite(self, change: Callable[[Vector, slice], object]) -> None:
        """Let `change` alter the displacements, block by block of columns; products are formed anew."""
        rows, sampled = self.rows, self._store[: self.slots, self.size :]

        def work(stripe: slice) -> tuple[Floats, Floats]:
            products, squares = np.zeros((self.slots, self.slots)), np.zeros(self.slots)
            for columns in blocks(stripe):
                moves = rows[self.move_slots, columns]
                change(moves, columns)
                rows[self.move_slots, columns] = moves
                block = rows[:, columns]
                if sampled.size:
                    squares += np.einsum("ij,ij->i", block, block)
                else:
                    products += block @ block.T
            if not sampled.size:
                return products, np.diagonal(products)
            for slot in self.move_slots:
                place = sample.draw(rows[slot], stripe, sampled[slot])
            return sampled[:, place] @ sampled[:, place].T, squares

        parts = zip(*over_columns(self.size, work), strict=True)
        products, squares = (np.asarray(np.sum(part, axis=0, dtype=np.float64)) for part in parts)
        self._squares = squares.tolist()
        if self._gram is not None:
            self._gram = products * (sample.scale(self.size) if sampled.size else 1.0)

    def release(self) -> None:
        """Give the memory back to the workspace; the rows are gone."""
        self._workspace.give(self._store)
        self._store = self._store[:0]
        self._squares.clear()

    def _push(self, fills: list[tuple[str, _Fill]]) -> None:
        """Add rows, all or none: raise if one is not finite."""
        first = self.slots
        self._reserve(first + len(fills))
        products, squares = self._fill(first, [fill for _, fill in fills])
        for slot, (kind, _), square in zip(range(first, first + len(fills)), fills, squares, strict=True):
            require_finite(self._store[slot, : self.size], square, kind)
        if self._gram is not None:
            gram, end = self._grown(self._gram, first + len(fills)), first + len(fills)
            together = self._together(first, len(fills))  # then all products are there, else one triangle
            gram[first:end, :end] = products
            gram[:first, first:end] = products[:, :first].T
            for slot in range(first + 1, end if not together else first):
                gram[first:slot, slot] = gram[slot, first:slot]
            self._gram = gram
        self._squares += squares.tolist()

    def _grown(self, gram: Floats, slots: int) -> Floats:
        """Room for so many rows: as many as there are vectors for, so that it seldom moves."""
        if slots <= len(gram):
            return gram
        grown = np.empty((max(slots, len(self._store)),) * 2)
        grown[: self.slots, : self.slots] = gram[: self.slots, : self.slots]
        return grown

    def _fill(self, first: int, fills: list[_Fill]) -> tuple[Floats, Floats]:
        """Write new rows, and in the same pass take their inner products with the rows up to each.

        Without a Gram matrix only their squares are formed.
        """
        store, sampled = self._store[:, : self.size], self._store[:, self.size :]
        alone, own = self._gram is None or sampled.size > 0, range(first, first + len(fills))
        together = self._together(first, len(fills))

        def work(stripe: slice) -> tuple[Floats, Floats]:
            products = np.zeros((len(fills), first + len(fills)))
            for columns in blocks(stripe):
                for i, fill in enumerate(fills):
                    slot = first + i
                    row = store[slot, columns]
                    fill(columns, row)
                    if not together:
                        since = slot if alone else 0
                        products[i, since : slot + 1] += store[since : slot + 1, columns] @ row
                if together:
                    # Of a matrix with itself BLAS forms one half only: cheaper than without the first rows.
                    rows = store[: first + len(fills), columns]
                    products += (rows @ rows.T)[first:]
            squares = products[range(len(fills)), own]
            for i, slot in enumerate(own if sampled.size else ()):
                place = sample.draw(store[slot], stripe, sampled[slot])
                products[i, : slot + 1] = sampled[: slot + 1, place] @ sampled[slot, place]
            return products, squares

        parts = zip(*over_columns(self.size, work), strict=True)
        products, squares = (np.sum(part, axis=0) for part in parts)
        return products * (sample.scale(self.size) if sampled.size else 1.0), squares

    def _together(self, first: int, new: int) -> bool:
        """Whether products of all rows are formed at once: when most of many are new, and none sampled."""
        return self._gram is not None and self._width == self.size and new > max(MANY, first)

    def _reserve(self, rows: int) -> None:
        if rows <= len(self._store):
            return
        grown = np.empty((max(4, rows, 3 * len(self._store) // 2), self._width), self.dtype)
        grown[: self.slots] = self._store[: self.slots]
        self._store = grown


def require_usable(vector: Vector) -> None:
    """Raise unless a state is finite and the difference of two like it can be squared in its dtype."""
    square = squared_length(vector)
    require_finite(vector, square if square < largest_square(vector.dtype) else math.inf, "state")


def largest_square(dtype: npt.DTypeLike) -> float:
    """Squared lengths below this leave room for the difference of two such vectors."""
    return float(np.finfo(np.dtype(dtype)).max) / 8


def squared_length(vector: Vector) -> float:
    """Squared length; float32 values are summed by blocks in float64."""

    def work(stripe: slice) -> float:
        return sum(float(np.dot(vector[columns], vector[columns])) for columns in blocks(stripe))

    return sum(over_columns(len(vector), work))


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


def _total(F: Vector) -> tuple[str, _Fill]:
    return "sum of flows", lambda columns, row: np.copyto(row, F[columns], "same_kind")


def _difference(end: Vector, start: Vector) -> _Fill:
    return lambda columns, row: np.subtract(end[columns], start[columns], out=row, casting="same_kind")
