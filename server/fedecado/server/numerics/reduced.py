"""The central solve in reduced coordinates: the same steps on a small coefficient matrix.

With J_i = I_i - I_i_k, what a flow changes by, the circuit reads

    C dx_c/dt = - sum_active J_i - F,    L dJ_i/dt = x_c - Gamma_i - J_i / G_i,    J_i = 0 at first

so the active flows themselves enter neither x_c nor J nor a truncation error; F does. The state is kept
as coefficients over the slots of a `Basis`: a row per J_i and one for x_c - x_c_start. A step is one
small solve on a dozen columns, whatever d is, and the cost of a round does not grow with the number of
steps. `Solution.central` is one weighted sum of rows, ready before `Solution.flows` is asked for. Where
there are more rows than parameters, the unit vectors take the rows' place: the smaller matrix is solved for.
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
from fedecado.server.numerics.gamma import fraction
from fedecado.server.numerics.options import Options
from fedecado.server.numerics.steps import Steps, integrate


@dataclass(frozen=True, slots=True)
class _State:
    x_c: Floats
    """Coefficients of x_c(tau) - x_c(0)."""
    J: Floats
    """A row of coefficients per active client."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The window's end, as coefficients until asked for as vectors."""

    basis: Basis
    end: _State
    steps: Steps
    F: Floats
    """Coefficients of F at the window's start."""
    rate: float
    """RMS of dx_c/dt at the window's end: zero when the circuit is at rest."""

    def central(self, x_c: Vector) -> Vector:
        """The new central state."""
        return self.basis.combine(self.end.x_c, onto=x_c)

    def flows(
        self, before: Sequence[Vector | None], F: Floats, squares: Floats | None = None
    ) -> tuple[list[Vector], Floats]:
        """The new flow of each active client, and F after that.

        `squares` receives their squared lengths.
        """
        return self.basis.advance(self.end.J, before, F, squares)

    @property
    def change(self) -> float:
        """RMS of what the centre moves by."""
        return float(self.basis.rms(self.end.x_c[None, :])[0])

    def require_room(self, flow_squares: Floats) -> None:
        """Raise if a result is too long to be squared, and so to take part in a later round.

        `flow_squares` are the squared lengths of the active flows at the window's start.
        """
        basis, total = self.basis, self.end.J.sum(0) + self.F
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = basis.length(np.vstack([self.end.x_c, total, self.end.J]))
            lengths[2:] += np.sqrt(flow_squares)
        if not (lengths < math.sqrt(np.finfo(basis.dtype).max)).all():
            values = lengths.max() / math.sqrt(basis.size)
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
        c, a = circuit, len(circuit.G)
        order = np.argsort(c.G, kind="stable")
        sorted_G, G = c.G[order], c.G[:, None]
        start, move, F = _coefficients(basis, versions)
        if basis.size < basis.slots:
            start, move, F = (part @ basis.rows for part in (start, move, F))
            basis = Basis.unit(basis.size, basis.dtype)
        slots = basis.slots
        norm = basis.rms if self.options.norm == "rms" else basis.peak

        def gamma(tau: float) -> Floats:
            return np.asarray(start + fraction(tau, c.times, c.rho)[:, None] * move)

        def slopes(state: _State, tau: float) -> Floats:
            return np.asarray(state.x_c - gamma(tau) - state.J / G)

        def attempt(state: _State, tau: float, dt: float) -> tuple[_State, float]:
            rhs = np.vstack([state.J - dt / c.L * gamma(tau + dt), c.C * state.x_c - dt * F])
            solved = arrow.solve(self.cache.get(dt, c.L, c.C, sorted_G), order, rhs)
            after = _State(solved[a], solved[:a])
            eps_i = dt / (2 * c.L) * (slopes(after, tau + dt) - slopes(state, tau)) / G
            eps_c = dt / (2 * c.C) * (after.J - state.J).sum(0)
            return after, float(norm(np.vstack([eps_i, eps_c])).max())

        # Whatever overflows is caught, and said in words, by the check of the error and of the room.
        with np.errstate(over="ignore", invalid="ignore"):
            rest = _State(np.zeros(slots), np.zeros((a, slots)))
            end, steps = integrate(attempt, rest, c.T, level, self.options)
            slope = (end.J.sum(0) + F) / c.C
            return Solution(basis, end, steps, F, rate=float(basis.rms(slope[None, :])[0]))


def _coefficients(basis: Basis, versions: list[int | None]) -> tuple[Floats, Floats, Floats]:
    """Unit rows for the start offsets and the displacements, and F."""
    a = len(versions)
    start, move, F = np.zeros((a, basis.slots)), np.zeros((a, basis.slots)), np.zeros(basis.slots)
    move[range(a), basis.move_slots] = 1.0
    F[basis.total_slot] = 1.0
    for i, version in enumerate(versions):
        if version is not None:
            start[i, basis.offset_slot(version)] = 1.0
    return start, move, F
