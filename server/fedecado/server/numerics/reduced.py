"""The central solve in reduced coordinates: the same steps on a small coefficient matrix.

With J_i = I_i - I_i_k, what a flow changes by, the circuit reads

    C dx_c/dt = - sum_active J_i - F,    L dJ_i/dt = x_c - Gamma_i - J_i / G_i,    J_i = 0 at first

so the active flows themselves enter neither x_c nor J nor a truncation error; F does. The state is kept
as coefficients over the slots of a `Basis`: a row per J_i and one for x_c - x_c_start. A step is one
small solve on a few numbers per client, see `Spread`, whatever d is, and the passes over long vectors do not
become more with the number of steps. `Solution.central` is one weighted sum of rows, ready before
`Solution.flows` is asked for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedecado.common.errors import NonFiniteError
from fedecado.common.layout import Vector
from fedecado.server.numerics import arrow
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.circuit import Circuit, Floats
from fedecado.server.numerics.columns import hold_blas
from fedecado.server.numerics.finite import largest
from fedecado.server.numerics.gamma import fraction
from fedecado.server.numerics.options import Options
from fedecado.server.numerics.spread import Own, Spread
from fedecado.server.numerics.steps import Steps, integrate


@dataclass(frozen=True, slots=True)
class _State:
    x_c: Floats
    """Coefficients of x_c(tau) - x_c(0)."""
    J: Spread
    """The active clients' rows; after a step, the last that they share is x_c."""
    total: Floats
    """The sum of J."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The window's end, as coefficients until asked for as vectors."""

    basis: Basis
    end: _State
    steps: Steps
    F: Floats
    """Coefficients of F at the window's end."""
    C: float
    norms: Floats
    """RMS of every J_i, of what the centre moves by and of dx_c/dt, at the window's end."""
    renewal: float
    """How much of the J_i the flows change by."""

    def central(self, x_c: Vector) -> Vector:
        """The new central state."""
        return self.basis.combine(self.end.x_c, onto=x_c)

    def flows(
        self, before: Sequence[Vector | None], F: Floats, squares: Floats | None = None
    ) -> tuple[list[Vector], Floats]:
        """The new flow of each active client, and F after that.

        `squares` receives their squared lengths.
        """
        return self.basis.advance(self.end.J.times(self.renewal), before, F, squares)

    @property
    def change(self) -> float:
        """RMS of what the centre moves by."""
        return float(self.norms[-2])

    @property
    def rate(self) -> float:
        """RMS of dx_c/dt: zero when the circuit is at rest."""
        return float(self.norms[-1])

    def require_room(self, flow_squares: Floats) -> None:
        """Raise if a result is too long to be squared, and so to take part in a later round.

        `flow_squares` are the squared lengths of the active flows at the window's start.
        """
        basis, end = self.basis, self.end
        with np.errstate(over="ignore", invalid="ignore"):
            if basis.sampled:
                lengths = basis.bound(end.J.dense(end.x_c, self.F))
            else:
                lengths = self.norms * math.sqrt(basis.size)
                lengths[-1] *= self.C
            lengths[:-2] += np.sqrt(flow_squares)
        longest = float(lengths.max())  # NaN if one is
        if not longest < math.sqrt(largest(basis.dtype)):
            values = longest / math.sqrt(basis.size)
            raise NonFiniteError(
                f"the central solve left the range of {basis.dtype} (values around {values:.3g}); "
                "the state is unchanged"
            )


class Reduced:
    """Turns a circuit and its basis into a solution; keeps LU factors between rounds."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.cache = arrow.FactorCache()

    def solve(self, basis: Basis, versions: list[int | None], circuit: Circuit, level: int = 0) -> Solution:
        """Integrate over the window; `versions` names the offset a client started from, if any."""
        hold_blas()
        c, own = circuit, _own(basis, versions)
        order = c.G.argsort(kind="stable")
        sorted_G, rank = c.G[order], order.argsort()
        F = np.zeros(basis.slots)
        F[basis.total_slot] = 1.0
        rms = self.options.norm == "rms"

        def attempt(state: _State, tau: float, dt: float) -> tuple[_State, float]:
            f = self.cache.get(dt, c.L, c.C, sorted_G)
            D, was, now = f.D[rank], fraction(tau, c.times, c.rho), fraction(tau + dt, c.times, c.rho)
            terms = _longer(state.J.terms, f.column)  # the last: what a client answers x_c with
            terms[0] -= f.column
            terms[1] -= f.column * now
            terms /= D
            total = Spread(own, terms[:-1], state.J.shared).total()
            x_c = f.centre(c.C * state.x_c - dt * F, total)
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
            errors = basis.norms(Spread(own, eps, J.shared), eps_c, rms=rms)
            return _State(x_c, J.compact(), sum_after), float(errors.max())

        # Whatever overflows is caught, and said in words, by the check of the error and of the room.
        with np.errstate(over="ignore", invalid="ignore"):
            rest = _State(np.zeros(basis.slots), Spread.zero(own, basis.slots), np.zeros(basis.slots))
            end, steps = integrate(attempt, rest, c.T, level, self.options)
            after = end.total + F
            norms = basis.norms(end.J, end.x_c, after / c.C)
            return Solution(basis, end, steps, after, c.C, norms, c.renewal)


def _longer(rows: Floats, last: Floats | float) -> Floats:
    """A copy with one more row."""
    grown = np.empty((len(rows) + 1, rows.shape[1]))
    grown[:-1] = rows
    grown[-1] = last
    return grown


def _own(basis: Basis, versions: list[int | None]) -> Own:
    """Where the vectors of clients that started from these versions are."""
    late = [i for i, version in enumerate(versions) if version is not None]
    offsets = [basis.offset_slot(version) for version in versions if version is not None]
    return Own(*(np.asarray(part, np.intp) for part in (basis.move_slots, late, offsets)))
