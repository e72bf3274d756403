"""The central solve in reduced coordinates: the same steps on a small coefficient matrix.

The state of the circuit is kept as coefficients over the slots of a `Basis`: a row per active
flow and one for x_c - x_c_start. A step is one small solve on a few dozen columns, whatever d is,
and the cost of a round no longer grows with the number of steps. `Solution.central` is one
weighted sum of rows and is ready before `Solution.flows` has rewritten the flows.
"""

from dataclasses import dataclass

import numpy as np

from fedecado.common.layout import Vector
from fedecado.server.numerics import arrow
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.circuit import Circuit, Floats
from fedecado.server.numerics.gamma import fraction
from fedecado.server.numerics.options import Options
from fedecado.server.numerics.steps import Steps, integrate


@dataclass(frozen=True, slots=True)
class _State:
    x_c: Floats
    """Coefficients of x_c(tau) - x_c(0)."""
    flows: Floats
    """A row of coefficients per active flow."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The window's end, as coefficients until asked for as vectors."""

    basis: Basis
    end: _State
    steps: Steps
    rate: float
    """RMS of dx_c/dt at the window's end: zero when the circuit is at rest."""

    def central(self, x_c: Vector) -> Vector:
        """The new central state."""
        moved = self.basis.combine(self.end.x_c)
        return np.add(moved, x_c, out=moved)

    def flows(self, F: Floats) -> Vector:
        """The new flows, a row per active client, with `F` brought up to date in place."""
        return self.basis.replace_flows(self.end.flows, F)


class Reduced:
    """Turns a circuit and its basis into a solution; keeps LU factors between rounds."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.cache = arrow.FactorCache()

    def solve(self, basis: Basis, versions: list[int | None], circuit: Circuit, level: int = 0) -> Solution:
        """Integrate over the window; `versions` names the offset a client started from, if any."""
        c, options, a = circuit, self.options, len(circuit.G)
        order = np.argsort(c.G, kind="stable")
        sorted_G, G = c.G[order], c.G[:, None]
        flows_k, start, move, S = _coefficients(basis, versions, held=options.absent == "held")
        norm = basis.rms if options.norm == "rms" else basis.peak

        def gamma(tau: float) -> Floats:
            return np.asarray(start + fraction(tau, c.times, c.rho)[:, None] * move)

        def slopes(state: _State, tau: float) -> Floats:
            return np.asarray(state.x_c - gamma(tau) - (state.flows - flows_k) / G)

        def attempt(state: _State, tau: float, dt: float) -> tuple[_State, float]:
            rhs = np.empty((a + 1, basis.slots))
            rhs[:a] = state.flows + dt / c.L * (flows_k / G - gamma(tau + dt))
            rhs[a] = c.C * state.x_c - dt * S
            solved = arrow.solve(self.cache.get(dt, c.L, c.C, sorted_G), order, rhs)
            after = _State(solved[a], solved[:a])
            errors = np.empty((a + 1, basis.slots))
            errors[:a] = dt / (2 * c.L) * (slopes(after, tau + dt) - slopes(state, tau)) / G
            errors[a] = dt / (2 * c.C) * (after.flows.sum(0) - state.flows.sum(0))
            return after, float(norm(errors).max())

        with np.errstate(over="ignore", invalid="ignore"):  # the checks inside say it in words
            end, steps = integrate(attempt, _State(np.zeros(basis.slots), flows_k), c.T, level, options)
            slope = (end.flows.sum(0) + S) / c.C
            total = (end.flows - flows_k).sum(0)
            total[basis.total_slot] += 1.0
            basis.require_room(np.vstack([end.flows, total, end.x_c]))
            return Solution(basis, end, steps, rate=float(basis.rms(slope[None, :])[0]))


def _coefficients(
    basis: Basis, versions: list[int | None], *, held: bool
) -> tuple[Floats, Floats, Floats, Floats]:
    """Unit rows for the flows at the start, the start offsets, the displacements, and S."""
    a = len(versions)
    flows, start, move = (np.zeros((a, basis.slots)) for _ in range(3))
    flows[range(a), basis.flow_slots] = 1.0
    move[range(a), basis.move_slots] = 1.0
    for i, version in enumerate(versions):
        if version is not None:
            start[i, basis.offset_slot(version)] = 1.0
    S = np.zeros(basis.slots)
    if held:
        # The absent flows are all flows less the active ones: no pass over n vectors.
        S[basis.total_slot] = 1.0
        S -= flows.sum(0)
    return flows, start, move, S
