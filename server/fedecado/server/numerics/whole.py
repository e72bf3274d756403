"""The steps of a round with few clients, on coefficients that are written out whole.

A row per J_i and one for x_c, over the slots of a basis. What a step does to them and what error it makes
are two small matrices, the arrow's factors multiplied out, which are kept as those are. With few clients it
counts how often numpy is called, not how much it computes: less than half as often as in `shared`, which
takes less time from some dozens of clients on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from fedecado.server.numerics import arrow
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.circuit import Circuit, Floats
from fedecado.server.numerics.gamma import fraction
from fedecado.server.numerics.spread import Own, Written

MOST: Final = 48
"""Clients of a round up to which rows are written out."""


@dataclass(frozen=True, slots=True)
class Map:
    """A step of length dt: what becomes of the rows, for clients sorted by G."""

    inverse: Floats
    """Of the arrow matrix."""
    errors: Floats
    """From what the rows change by to their truncation errors, but for Gamma."""
    column: float
    """dt/L."""
    halves: Floats
    """dt / (2 L G_i)."""


def factor(dt: float, L: float, C: float, G: Floats) -> Map:
    """The map for sensitivities `G` in ascending order."""
    f, a = arrow.factor(dt, L, C, G), len(G)
    inverse, errors = np.zeros((a + 1, a + 1)), np.zeros((a + 1, a + 1))
    inverse[a, :a] = -dt / (f.pivot * f.D)
    inverse[a, a] = 1.0 / f.pivot
    inverse[:a] = (f.column / f.D)[:, None] * inverse[a]
    diagonal = np.arange(a)
    inverse[diagonal, diagonal] += 1.0 / f.D
    halves = dt / (2 * L) / G
    errors[:a, a] = halves
    errors[diagonal, diagonal] = -halves / G
    errors[a, :a] = dt / (2 * C)
    return Map(inverse, errors, f.column, halves)


class March:
    """The steps through one window."""

    def __init__(
        self,
        basis: Basis,
        own: Own,
        c: Circuit,
        maps: arrow.FactorCache[Map],
        norms: Callable[[Floats], Floats],
    ) -> None:
        """`norms` are those of combinations of the basis' rows."""
        self._c, self._maps, self._norms = c, maps, norms
        order = c.G.argsort(kind="stable")
        self._rank = order.argsort()
        self._G, self._times, self._rho = c.G[order], c.times[order], c.rho[order]
        self._total = basis.total_slot
        # Entries of the rows laid end to end.
        self._moves = np.arange(0, len(order) * basis.slots, basis.slots) + own.moves[order]
        self._starts = self._rank[own.late] * basis.slots + own.offsets
        self.rest = np.zeros((len(order) + 1, basis.slots))

    def attempt(self, rows: Floats, tau: float, dt: float) -> tuple[Floats, float]:
        """The rows after a step, and the largest of their errors."""
        c = self._c
        step = self._maps.get(dt, c.L, c.C, self._G)
        was, now = (fraction(at, self._times, self._rho) for at in (tau, tau + dt))
        rhs = rows.copy()
        rhs[-1] *= c.C
        rhs[-1, self._total] -= dt
        entries = rhs.reshape(-1)
        entries[self._moves] -= step.column * now
        if len(self._starts):
            entries[self._starts] -= step.column
        after = step.inverse @ rhs
        errors = step.errors @ (after - rows)
        errors.reshape(-1)[self._moves] -= step.halves * (now - was)
        return after, float(self._norms(errors).max())

    def ended(self, rows: Floats) -> tuple[Floats, Written, Floats]:
        """x_c, the J_i in the clients' own order, and their sum."""
        J = rows[self._rank]
        return rows[-1], Written(J), J.sum(0)
