"""The central solve written out on full vectors: slow, plain, the reference for `reduced`.

It shares no algebra with it: flows I instead of their changes J, the dense arrow matrix in LAPACK's
hands instead of its own elimination, vectors instead of coefficients.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from fedecado.common.layout import Vector
from fedecado.server.numerics.circuit import Circuit, Floats
from fedecado.server.numerics.gamma import gamma
from fedecado.server.numerics.options import Norm, Options
from fedecado.server.numerics.steps import Steps, integrate


@dataclass(frozen=True, slots=True)
class Problem:
    """One round's vectors; matrices have a row per active client."""

    x_c: Vector
    S: Vector
    flows: Vector
    starts: Vector
    moves: Vector


@dataclass(frozen=True, slots=True)
class _State:
    x_c: Floats
    flows: Floats


def solve(
    problem: Problem, circuit: Circuit, options: Options, level: int = 0
) -> tuple[Floats, Floats, Steps]:
    """The central state and the active flows at the window's end, in float64."""
    c = circuit
    x_c, S, flows_k, starts, moves = (
        np.asarray(v, np.float64)
        for v in (problem.x_c, problem.S, problem.flows, problem.starts, problem.moves)
    )
    G = c.G[:, None]

    @cache
    def factors(dt: float) -> tuple[Floats, Any]:
        return lu_factor(_arrow(dt, c))

    def slopes(state: _State, tau: float) -> Floats:
        drift = gamma(tau, starts, moves, c.times, c.rho)
        return np.asarray(state.x_c - drift - (state.flows - flows_k) / G)

    def attempt(state: _State, tau: float, dt: float) -> tuple[_State, float]:
        target = gamma(tau + dt, starts, moves, c.times, c.rho)
        rhs = np.vstack(
            [state.flows + dt / c.L * (flows_k / G - target), (c.C * state.x_c - dt * S)[None, :]]
        )
        solution = np.asarray(lu_solve(factors(dt), rhs))
        after = _State(solution[-1], solution[:-1])
        eps_c = dt / (2 * c.C) * (after.flows.sum(0) - state.flows.sum(0))
        eps_i = dt / (2 * c.L) * (slopes(after, tau + dt) - slopes(state, tau)) / G
        return after, float(_norms(np.vstack([eps_c[None, :], eps_i]), options.norm).max())

    end, steps = integrate(attempt, _State(x_c, flows_k), c.T, level, options)
    return end.x_c, end.flows, steps


def _arrow(dt: float, c: Circuit) -> Floats:
    """The matrix of one backward-Euler step for the flows and the centre."""
    a = len(c.G)
    matrix = np.zeros((a + 1, a + 1))
    matrix[range(a), range(a)] = 1.0 + dt / (c.L * c.G)
    matrix[:a, a] = -dt / c.L
    matrix[a, :a] = dt
    matrix[a, a] = c.C
    return matrix


def _norms(rows: Floats, norm: Norm) -> Floats:
    if norm == "rms":
        return np.asarray(np.sqrt(np.mean(np.square(rows), axis=1)))
    return np.asarray(np.abs(rows).max(axis=1))
