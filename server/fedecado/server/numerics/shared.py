"""The steps of a round with many clients, on a few numbers per client: see `Spread`."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedecado.server.numerics import arrow
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.circuit import Circuit, Floats
from fedecado.server.numerics.gamma import fraction
from fedecado.server.numerics.spread import Own, Spread


@dataclass(frozen=True, slots=True)
class State:
    """Where a window has come to."""

    x_c: Floats
    """Coefficients of x_c(tau) - x_c(0)."""
    J: Spread
    """The active clients' rows; after a step, the last that they share is x_c."""
    total: Floats
    """The sum of J."""


class March:
    """The steps through one window."""

    def __init__(
        self,
        basis: Basis,
        own: Own,
        c: Circuit,
        factors: arrow.FactorCache[arrow.Factor],
        norms: Callable[..., Floats],
    ) -> None:
        """`norms` are those of the combinations of a spread and of further ones."""
        self._own, self._c, self._factors, self._norms = own, c, factors, norms
        order = c.G.argsort(kind="stable")
        self._sorted_G, self._rank = c.G[order], order.argsort()
        self._F = np.zeros(basis.slots)
        self._F[basis.total_slot] = 1.0
        self.rest = State(np.zeros(basis.slots), Spread.zero(own, basis.slots), np.zeros(basis.slots))

    def attempt(self, state: State, tau: float, dt: float) -> tuple[State, float]:
        """The state after a step, and the largest of its errors."""
        c, own = self._c, self._own
        f = self._factors.get(dt, c.L, c.C, self._sorted_G)
        D, was, now = f.D[self._rank], fraction(tau, c.times, c.rho), fraction(tau + dt, c.times, c.rho)
        terms = _longer(state.J.terms, f.column)  # the last: what a client answers x_c with
        terms[0] -= f.column
        terms[1] -= f.column * now
        terms /= D
        total = Spread(own, terms[:-1], state.J.shared).total()
        x_c = f.centre(c.C * state.x_c - dt * self._F, total)
        J = Spread(own, terms, _longer(state.J.shared, x_c))
        sum_after = total + terms[-1].sum() * x_c
        # The slopes' difference: that of x_c - Gamma_i - J_i / G_i.
        eps = terms / -c.G
        eps[:-1] += state.J.terms / c.G
        eps[1] -= now - was
        eps[-1] += 1.0
        if len(state.J.shared):
            eps[-2] -= 1.0
        eps *= dt / (2 * c.L) / c.G
        eps_c = dt / (2 * c.C) * (sum_after - state.total)
        errors = self._norms(Spread(own, eps, J.shared), eps_c)
        return State(x_c, J.compact(), sum_after), float(errors.max())


def _longer(rows: Floats, last: Floats | float) -> Floats:
    """A copy with one more row."""
    grown = np.empty((len(rows) + 1, rows.shape[1]))
    grown[:-1] = rows
    grown[-1] = last
    return grown
