"""The few long vectors of a round, and their Gram matrix grown as updates arrive.

Everything the central solve computes is, in each of the d coordinates, the same linear
combination of: F (the sum of all flows), the active flows, the displacements `x_i_end - x_i_start`,
and, where a client started from an older version, that version's offset from `x_c`. A `Basis`
holds these rows; results are coefficients over its slots. The long vectors are touched when a row
arrives (its inner products) and when a result is formed, never in between.

Rows keep the dtype of the model; inner products are formed in blocks that fit the cache and summed
in float64, so in float32 a norm is good to about 1e-4 of the largest row.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from fedecado.common.errors import LayoutError, NonFiniteError
from fedecado.common.layout import Vector
from fedecado.server.numerics.circuit import Floats

BLOCK = 16_384
"""Columns handled at a time: a few dozen rows of them stay in the second-level cache."""


class _Rows:
    """A growing stack of contiguous rows; `slots` are their places in the coefficient vectors."""

    def __init__(self, kind: str, size: int, dtype: npt.DTypeLike, capacity: int) -> None:
        self.kind = kind
        self._store: Vector = np.empty((capacity, size), dtype)
        self.slots: list[int] = []

    def push(self, slot: int) -> Vector:
        if len(self.slots) == len(self._store):
            grown = np.empty((max(4, 2 * len(self._store)), self._store.shape[1]), self._store.dtype)
            grown[: len(self._store)] = self._store
            self._store = grown
        self.slots.append(slot)
        row: Vector = self.filled[-1]
        return row

    @property
    def filled(self) -> Vector:
        return self._store[: len(self.slots)]


class Basis:
    """Rows over the d parameters: F, offsets, flows and displacements."""

    def __init__(self, size: int, dtype: npt.DTypeLike, *, capacity: int = 0, gram: bool = False) -> None:
        self.size, self.dtype = size, np.dtype(dtype)
        self.slots = 0
        self._totals = _Rows("sum of flows", size, dtype, 1)
        self._offsets = _Rows("offset of the start", size, dtype, 0)
        self._flows = _Rows("flow", size, dtype, capacity if gram else 0)
        self._moves = _Rows("displacement", size, dtype, capacity)
        self._squares: list[float] = []
        self._offset_slot: dict[int, int] = {}
        self.gram: Floats | None = np.empty((0, 0)) if gram else None

    @property
    def _groups(self) -> tuple[_Rows, ...]:
        return self._totals, self._offsets, self._flows, self._moves

    @property
    def total_slot(self) -> int:
        return self._totals.slots[0]

    @property
    def flow_slots(self) -> list[int]:
        return self._flows.slots

    @property
    def move_slots(self) -> list[int]:
        return self._moves.slots

    def offset_slot(self, version: int) -> int:
        return self._offset_slot[version]

    def set_total(self, F: Vector) -> None:
        """Give the sum of all flows; the first row of a FedECADO round."""
        with self._transaction():
            self._push(self._totals)[:] = F

    def append(
        self,
        end: Vector,
        start: Vector,
        flow: Vector | None = None,
        *,
        older: tuple[int, Vector] | None = None,
    ) -> None:
        """Add a client's displacement, and its flow where the algorithm has one.

        `older` is (version, x_c) when the start is not x_c but an earlier version: its offset from x_c
        is added too, once per version. Raises without a trace if a vector has the wrong length or is
        not finite.
        """
        for what, vector in (("end state", end), ("start state", start), ("flow", flow)):
            if vector is not None and vector.shape != (self.size,):
                raise LayoutError(f"{what} has shape {vector.shape}; the model has {self.size} parameters")
        fresh = older if older and older[0] not in self._offset_slot else None
        with self._transaction(), np.errstate(over="ignore", invalid="ignore"):
            if fresh:
                np.subtract(start, fresh[1], out=self._push(self._offsets), casting="same_kind")
            np.subtract(end, start, out=self._push(self._moves), casting="same_kind")
            if flow is not None:
                self._push(self._flows)[:] = flow
        if fresh:
            self._offset_slot[fresh[0]] = self._offsets.slots[-1]

    def combine(self, coefficients: Floats) -> Vector:
        """One vector: the rows weighted by `coefficients` over all slots.

        It may overflow to infinity; callers judge the result.
        """
        result: Vector | None = None
        with np.errstate(over="ignore", invalid="ignore"):
            for group in self._groups:
                if weights := [coefficients[slot] for slot in group.slots]:
                    part = np.asarray(weights, self.dtype) @ group.filled
                    result = part if result is None else np.add(result, part, out=result)
        return np.zeros(self.size, self.dtype) if result is None else result

    def combine_blocks(self, coefficients: Floats) -> Iterator[tuple[slice, Vector]]:
        """Several combinations (a row each) block by block; the yielded buffer is reused."""
        parts = [
            (np.ascontiguousarray(coefficients[:, group.slots], self.dtype), group.filled)
            for group in self._groups
            if group.slots
        ]
        sums = np.empty((len(coefficients), min(BLOCK, self.size)), self.dtype)
        scratch = np.empty_like(sums)
        for columns in self._blocks():
            width = columns.stop - columns.start
            out, part = sums[:, :width], scratch[:, :width]
            out[:] = 0
            for weights, rows in parts:
                out += np.matmul(weights, rows[:, columns], out=part)
            yield columns, out

    def replace_flows(self, coefficients: Floats, F: Floats) -> Vector:
        """Overwrite the flow rows with combinations of all rows, and bring `F` up to date.

        `F` is float64 and moves by the difference of the rounded flows, so that it stays their
        exact sum however many rounds go by. Returns the flow rows.
        """
        for columns, fresh in self.combine_blocks(coefficients):
            flows = self._flows.filled[:, columns]
            F[columns] += fresh.sum(0, dtype=np.float64) - flows.sum(0, dtype=np.float64)
            flows[:] = fresh
        return self._flows.filled

    def rms(self, coefficients: Floats) -> Floats:
        """Root mean square over the parameters of each combination, from the Gram matrix."""
        assert self.gram is not None  # noqa: S101 - a programming error, not an input
        squares = np.sum((coefficients @ self.gram) * coefficients, axis=1)
        return np.asarray(np.sqrt(np.maximum(squares, 0.0) / self.size))

    def peak(self, coefficients: Floats) -> Floats:
        """Largest absolute value of each combination; passes over the long vectors."""
        peaks = np.zeros(len(coefficients))
        for _, block in self.combine_blocks(coefficients):
            np.maximum(peaks, np.abs(block).max(axis=1), out=peaks)
        return peaks

    def squares(self) -> Floats:
        """Squared length of every displacement, in order of arrival."""
        return np.asarray([self._squares[slot] for slot in self._moves.slots])

    def require_room(self, coefficients: Floats) -> None:
        """Raise if a combination is too long to be squared, and so to be a row of a later round."""
        norms = self.rms(coefficients)
        if not (norms < np.sqrt(np.finfo(self.dtype).max / self.size)).all():
            raise NonFiniteError(
                f"the central solve left the range of {self.dtype} (values around {norms.max():.3g}); "
                "the state is unchanged"
            )

    def _push(self, group: _Rows) -> Vector:
        self.slots += 1
        return group.push(self.slots - 1)

    def _blocks(self) -> Iterator[slice]:
        for start in range(0, self.size, BLOCK):
            yield slice(start, min(start + BLOCK, self.size))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Rows pushed inside are admitted together, or all taken back."""
        before = self.slots
        try:
            yield
            self._admit(before)
        except BaseException:
            self._truncate(before)
            raise

    def _admit(self, first: int) -> None:
        """Extend the Gram matrix by the rows from slot `first` on; raise if they are not finite."""
        fresh = {
            slot: (group.kind, group.filled[i])
            for group in self._groups
            for i, slot in enumerate(group.slots)
            if slot >= first
        }
        rows = [fresh[slot][1] for slot in range(first, self.slots)]
        if self.gram is None:
            grown, squares = None, [squared_length(row) for row in rows]
        else:
            grown = self._extended(self.gram, rows)
            squares = grown.diagonal()[first:].tolist()
        for slot, square in zip(range(first, self.slots), squares, strict=True):
            _require_finite(fresh[slot][1], square, fresh[slot][0])
        self.gram = grown
        self._squares += squares

    def _extended(self, gram: Floats, rows: list[Vector]) -> Floats:
        """The Gram matrix with the last slots, whose `rows` are given, taken in."""
        first = len(gram)
        grown = np.zeros((self.slots, self.slots))
        grown[:first, :first] = gram
        with np.errstate(over="ignore", invalid="ignore"):
            for columns in self._blocks():
                block = np.stack([row[columns] for row in rows])
                for group in self._groups:
                    if group.slots:
                        grown[first:, group.slots] += block @ group.filled[:, columns].T
        grown[:first, first:] = grown[first:, :first].T
        return grown

    def _truncate(self, slots: int) -> None:
        self.slots = slots
        for group in self._groups:
            while group.slots and group.slots[-1] >= slots:
                group.slots.pop()


def require_usable(vector: Vector) -> None:
    """Raise unless a state is finite and the difference of two like it can be squared in its dtype."""
    square = squared_length(vector)
    _require_finite(vector, square if square < np.finfo(vector.dtype).max / 8 else math.inf, "state")


def squared_length(row: Vector) -> float:
    """Squared length; float32 rows are summed by blocks in float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(
            sum(float(np.dot(row[i : i + BLOCK], row[i : i + BLOCK])) for i in range(0, len(row), BLOCK))
        )


def _require_finite(row: Vector, square: float, kind: str) -> None:
    """A finite sum of squares proves every entry finite; only the failing case looks closer."""
    if np.isfinite(square):
        return
    bad = np.flatnonzero(~np.isfinite(row))
    if len(bad):
        raise NonFiniteError(
            f"{len(bad)} of {len(row)} values of the {kind} are NaN or infinite, the first at index "
            f"{bad[0]}; lower the learning rate or clip gradients on that client"
        )
    raise NonFiniteError(
        f"values of the {kind} up to {np.abs(row).max():.3g} are too large to square in {row.dtype}; "
        "lower the learning rate or clip gradients on that client"
    )
