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
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from fedecado.common.errors import LayoutError, NonFiniteError
from fedecado.common.layout import Vector
from fedecado.server.numerics import sample
from fedecado.server.numerics.circuit import Floats
from fedecado.server.numerics.columns import LONG_BLOCK, blocks, fast_width, over_columns
from fedecado.server.numerics.gram import Gram
from fedecado.server.numerics.spread import Spread
from fedecado.server.numerics.workspace import Workspace

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
        self._gram = Gram() if gram else None
        self.total_slot: int | None = None
        self.move_slots: list[int] = []

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
        if self._gram is None:
            return None
        if self._gram.rows < self.slots:
            self._multiply(self._gram)
        return self._gram.products

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
        result = self._workspace.vector(self.size, self.dtype)

        def work(stripe: slice) -> None:
            for columns in blocks(stripe):
                out = result[columns]
                if len(rows) == 1:  # which matmul does not hand to BLAS: its own loop takes ten times as long
                    np.multiply(weights[0], rows[0, columns], out=out)
                else:
                    np.matmul(weights, rows[:, columns], out=out)
                if onto is not None:
                    out += onto[columns]

        over_columns(self.size, work)
        return result

    def advance(
        self,
        spread: Spread,
        vectors: Sequence[Vector | None],
        total: Floats,
        squares: Floats | None = None,
    ) -> tuple[list[Vector], Floats]:
        """Each vector (None is zero) plus its combination of the rows, as new vectors; and their new total.

        `total` is float64. The new one differs from it by the differences of the rounded results, so that it
        stays the exact sum of what is stored however many rounds go by. `squares` receives the squared
        lengths of the results, taken while they are in cache.
        """
        changes = _Changes(spread, self.rows)
        results = [self._workspace.vector(self.size, self.dtype) for _ in vectors]
        moved: Floats = np.asarray(self._workspace.vector(self.size, np.float64), np.float64)
        widest, narrow = _widths(len(results), math.prod(changes.shape))

        def work(stripe: slice) -> Floats:
            (new, old), room = np.empty((2, widest)), np.empty((changes.room, widest), self.dtype)
            lengths = np.zeros(len(results))
            for columns in blocks(stripe, widest):
                width = columns.stop - columns.start
                sums, so_far = moved[columns], total[columns]
                for i, by in enumerate(changes.on(columns, narrow, room)):
                    vector, after, exact = vectors[i], results[i][columns], new[:width]
                    if vector is None:
                        after[:] = exact[:] = by
                    else:
                        # Casts and a difference of their own take half as long as a subtraction that casts.
                        # The first one brings the vector into the cache.
                        before = vector[columns]
                        old[:width] = before
                        exact[:] = np.add(before, by, out=after)
                        exact -= old[:width]
                    if squares is not None:
                        lengths[i] += np.dot(after, after)
                    so_far = np.add(so_far, exact, out=sums)
            return lengths

        parts = over_columns(self.size, work)
        if squares is not None:
            np.sum(parts, axis=0, out=squares)
        return results, moved

    def norms(self, spread: Spread, row: Floats, *, rms: bool) -> Floats:
        """Root mean square, or else the largest absolute value, of a spread's combinations and one more."""
        if rms and spread.few and self.size >= self.slots and self.gram is not None:
            return np.append(self._rms(spread.squares(self.gram)), self.rms(row[None, :]))
        rows = np.vstack([spread.dense(), row])
        return self.rms(rows) if rms else self.peak(rows)

    def rms(self, coefficients: Floats) -> Floats:
        """Root mean square over the parameters of each combination, from the Gram matrix."""
        if self.size < self.slots:  # where the vectors themselves are less work, and exact
            return np.asarray(np.sqrt(np.mean(np.square(coefficients @ self.rows), axis=1)))
        assert self.gram is not None  # noqa: S101 - a programming error, not an input
        return self._rms(np.sum((coefficients @ self.gram) * coefficients, axis=1))

    def _rms(self, squares: Floats) -> Floats:
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

    def lengths(self, spread: Spread) -> Floats:
        """The same for each combination of a spread."""
        if self._width > self.size or self.size < self.slots or self.gram is None or not spread.few:
            return self.length(spread.dense())
        return np.asarray(self._rms(spread.squares(self.gram)) * math.sqrt(self.size))

    def squares(self) -> Floats:
        """Squared length of every displacement, in order of arrival."""
        return np.asarray([self._squares[slot] for slot in self.move_slots])

    def rewrite(self, change: Callable[[Vector, slice], object]) -> None:
        """Let `change` alter the displacements, block by block of columns; products are formed anew."""
        rows, sampled = self.rows, self._store[: self.slots, self.size :]

        def work(stripe: slice) -> Floats:
            squares = np.zeros(self.slots)
            for columns in blocks(stripe):
                moves = rows[self.move_slots, columns]
                change(moves, columns)
                rows[self.move_slots, columns] = moves
                block = rows[:, columns]
                squares += np.einsum("ij,ij->i", block, block)
            for slot in self.move_slots if sampled.size else ():
                sample.draw(rows[slot], stripe, sampled[slot])
            return squares

        self._squares = np.sum(over_columns(self.size, work), axis=0).tolist()
        self._gram = Gram() if self._gram is not None else None

    def release(self) -> None:
        """Give the memory back to the workspace; the rows are gone."""
        self._workspace.give(self._store)
        self._store = self._store[:0]
        self._squares.clear()

    def _push(self, fills: list[tuple[str, _Fill]]) -> None:
        """Add rows, all or none: raise if one is not finite."""
        first = self.slots
        self._reserve(first + len(fills))
        squares = self._fill(first, [fill for _, fill in fills])
        for slot, ((kind, _), square) in enumerate(zip(fills, squares, strict=True), first):
            require_finite(self._store[slot, : self.size], square, kind)
        self._squares += squares
        if self._gram is not None and self._gram.is_due(self.slots):
            self._multiply(self._gram)

    def _fill(self, first: int, fills: list[_Fill]) -> list[float]:
        """Write new rows, and take their squared lengths and samples while they are in cache."""
        store, sampled = self._store[:, : self.size], self._store[:, self.size :]

        def work(stripe: slice) -> list[float]:
            squares = [0.0] * len(fills)
            for columns in blocks(stripe, LONG_BLOCK):
                for i, fill in enumerate(fills):
                    row = store[first + i, columns]
                    fill(columns, row)
                    squares[i] += float(np.dot(row, row))
            for slot in range(first, first + len(fills)) if sampled.size else ():
                sample.draw(store[slot], stripe, sampled[slot])
            return squares

        parts = over_columns(self.size, work)
        return parts[0] if len(parts) == 1 else [sum(part) for part in zip(*parts, strict=True)]

    def _multiply(self, gram: Gram) -> None:
        """Take the inner products of the rows that have none yet."""
        if self._width > self.size:
            gram.grow(self._store[: self.slots, self.size :], sample.scale(self.size), len(self._store))
        else:
            gram.grow(self.rows, 1.0, len(self._store))

    def _reserve(self, rows: int) -> None:
        if rows <= len(self._store):
            return
        grown = np.empty((max(4, rows, 3 * len(self._store) // 2), self._width), self.dtype)
        grown[: self.slots] = self._store[: self.slots]
        self._store = grown


class _Changes:
    """What a spread comes to, block by block of columns."""

    def __init__(self, spread: Spread, rows: Vector) -> None:
        self._rows, self._own, self._few = rows, spread.own, spread.few
        factors, terms = (spread.shared, spread.terms) if spread.few else (spread.dense(), spread.terms[:0])
        self._factors, self._terms = factors.astype(rows.dtype), terms.astype(rows.dtype)

    @property
    def shape(self) -> tuple[int, int]:
        """Of the product that is taken, before its columns."""
        return len(self._factors), len(self._rows)

    @property
    def room(self) -> int:
        """Rows of memory that `on` wants to be given."""
        return len(self._factors) + (2 if self._few else 0)

    def on(self, columns: slice, narrow: int, room: Vector) -> Iterable[Vector]:
        """The clients' combinations in turn; each may be gone when the next is asked for."""
        width = columns.stop - columns.start
        products = room[: len(self._factors), :width]
        for part in blocks(slice(0, width), narrow):
            at = slice(columns.start + part.start, columns.start + part.stop)
            np.matmul(self._factors, self._rows[:, at], out=products[:, part])
        return self._apart(columns, products, *room[len(products) :, :width]) if self._few else products

    def _apart(self, columns: slice, products: Vector, by: Vector, one: Vector) -> Iterator[Vector]:
        """What clients share, taken apart, and each one's own."""
        own, rows, (starts, moves, *_) = self._own, self._rows, self._terms
        shares = np.ascontiguousarray(self._terms[2:].T)
        offsets = dict(zip(own.late.tolist(), own.offsets.tolist(), strict=True))
        for i, slot in enumerate(own.moves.tolist()):
            if len(products) == 1:
                np.multiply(products[0], shares[i, 0], out=by)
            else:
                np.dot(shares[i], products, out=by)
            by += np.multiply(rows[slot, columns], moves[i], out=one)
            if i in offsets:
                by += np.multiply(rows[offsets[i], columns], starts[i], out=one)
            yield by


def _widths(results: int, multiplications: int) -> tuple[int, int]:
    """Columns of a block that is written on to all results, and of the products it is made of.

    The first is as wide as stays in cache: calls on few columns cost more than their work, and memory is read
    faster in long runs.
    """
    widest = min(LONG_BLOCK, max(4096, 10 * LONG_BLOCK // results))
    return widest, min(fast_width(multiplications), widest) or widest


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
