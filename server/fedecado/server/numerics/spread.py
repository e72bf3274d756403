"""Rows of coefficients over the slots of a basis, one per client, that differ from each other in little.

    row_i = terms[0, i] start_i + terms[1, i] move_i + sum_k terms[2 + k, i] shared_k

A client's own vectors are the offset that it started from, if it is late, and its displacement. All else
that enters its flow is where the centre was after each step, which is the same for all. So a row takes as
many numbers as there were steps, and what is computed of all rows grows with the clients, not with their
square.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from fedecado.common.records import record
from fedecado.server.numerics.circuit import Floats

SPARE: Final = 8
"""Shared rows beyond twice the slots, so that rows are not written out anew after every step."""

FEW: Final = 64
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Own:
    """Where the clients' own vectors are."""

    moves: Indices
    """Slots of the displacements."""
    late: Indices
    """Clients that started from an older version."""
    offsets: Indices
    """Slots of the offsets of those."""


@dataclass(frozen=True, slots=True)
class Spread:
    """As many rows as there are clients."""

    own: Own
    terms: Floats
    """A column per client; what stands in the first row of those who are not late means nothing."""
    shared: Floats
    """Rows over all slots."""

    @classmethod
    def zero(cls, own: Own, slots: int) -> Self:
        return cls(own, np.zeros((2, len(own.moves))), np.empty((0, slots)))

    def compact(self) -> Self:
        """The same rows with no more to share than slots, and the last that they share after that.

        For windows of many steps.
        """
        a, slots = len(self.own.moves), self.shared.shape[1]
        if len(self.shared) <= 2 * slots + SPARE:
            return self
        terms = np.vstack([np.zeros((2, a)), self.dense().T, np.zeros((1, a))])
        return type(self)(self.own, terms, np.vstack([np.eye(slots), self.shared[-1]]))

    def times(self, factor: float | Floats) -> Self:
        """The same rows, shortened, all alike or each by its own factor."""
        return type(self)(self.own, factor * self.terms, self.shared)

    def total(self) -> Floats:
        """The sum of all rows."""
        own, total = self.own, self.terms[2:].sum(1) @ self.shared
        total[own.moves] += self.terms[1]
        if len(own.late):
            np.add.at(total, own.offsets, self.terms[0, own.late])
        return np.asarray(total)

    def dense(self, *more: Floats) -> Floats:
        """The rows written out, with `more` of them behind."""
        own, a = self.own, len(self.own.moves)
        rows = np.empty((a + len(more), self.shared.shape[1]))
        np.matmul(self.terms[2:].T, self.shared, out=rows[:a])
        rows[np.arange(a), own.moves] += self.terms[1]
        if len(own.late):
            rows[own.late, own.offsets] += self.terms[0, own.late]
        for i, row in enumerate(more, a):
            rows[i] = row
        return rows

    @property
    def few(self) -> bool:
        """Whether the rows share so little that it pays not to write them out: more calls, less work."""
        steps, slots = self.shared.shape
        return bool(FEW * steps < slots)

    def squares(self, gram: Floats) -> Floats:
        """Squared length of every combination of vectors with these inner products."""
        own, (starts, moves, *_), shares = self.own, self.terms, self.terms[2:]
        met = self.shared @ gram
        squares = moves * (moves * gram[own.moves, own.moves] + 2 * (shares * met[:, own.moves]).sum(0))
        squares += (shares * (met @ self.shared.T @ shares)).sum(0)
        if len(own.late):
            late, at = own.late, own.offsets
            twice = moves[late] * gram[at, own.moves[late]] + (shares[:, late] * met[:, at]).sum(0)
            squares[late] += starts[late] * (starts[late] * gram[at, at] + 2 * twice)
        return np.asarray(squares)


@record
class Written:
    """The same for a few clients, written out."""

    rows: Floats

    def times(self, factor: float | Floats) -> Self:
        """The same rows, shortened, all alike or each by its own factor."""
        if isinstance(factor, float):
            return self if factor == 1.0 else type(self)(factor * self.rows)
        return type(self)(factor[:, None] * self.rows)

    def dense(self, *more: Floats) -> Floats:
        """The rows, with `more` of them behind."""
        return np.concatenate([self.rows, more]) if more else self.rows


Coefficients = Spread | Written
