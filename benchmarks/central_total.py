"""All central work of a round (checks, inner products, centre, flows), whatever the number of steps.

All updates but the last one are looked at while others still arrive.
"""

import numpy as np

from benchmarks.harness import CORES, Contender, race, report
from benchmarks.rounds import Round
from fedecado.common.layout import Vector
from fedecado.server.algorithms import Options

A, D = 10, 9_200_000
LEVELS = (0, 3, 7)


def run(quick: bool) -> None:
    d, repeats = (1_000_000, 3) if quick else (D, 5)
    rounds = {level: Round(A, d, _forced(level), level) for level in LEVELS}
    X, full = rounds[0].ends, _FullVectors(A, d)
    w = np.random.default_rng(1).dirichlet(np.ones(A)).astype(np.float32)
    contenders = [
        Contender("w @ X", lambda: w @ X, blas_threads=CORES),
        *(
            Contender(f"fedecado, {2**level} step{'s' * (level > 0)}", r.everything)
            for level, r in rounds.items()
        ),
        Contender("nobody else has a flow, 1 step", Round(A, d, _forced(0), alone=True).everything),
        *_parts(Round(A, d)),
        Contender("on full vectors, 1 step", lambda: full.run(1)),
        Contender("on full vectors, 8 steps", lambda: full.run(8)),
    ]
    race(contenders, repeats)
    report("central_total", contenders, a=A, d=d)


def _parts(one: Round) -> list[Contender]:
    """The same work by when it is done."""

    def arrive() -> None:
        one.add(0, A - 1)

    def close() -> None:
        one.start(A)
        one.aggregate()

    return [
        Contender("while updates arrive", arrive, prepare=lambda: one.start(0)),
        Contender("from the last one to the new centre", one.last_update, prepare=lambda: one.start(A - 1)),
        Contender("flows, before the next tasks", one.finish, prepare=close),
    ]


def _forced(level: int) -> Options:
    """Every step at the shortest length: no error is small enough to lengthen it."""
    return Options(tolerance=1e-300, max_level=level)


class _FullVectors:
    """What the reduced coordinates save: each backward-Euler step written out on all vectors."""

    def __init__(self, a: int, d: int) -> None:
        draw = np.random.default_rng(0)
        self._x_c = draw.standard_normal(d, dtype=np.float32)
        self._ends = self._x_c + np.float32(0.01) * draw.standard_normal((a, d), dtype=np.float32)
        self._flows = np.zeros((a, d), np.float32)

    def run(self, steps: int) -> None:
        dt, L, C, G = 0.5 / steps, 0.01, 10.0, 2.0
        D = 1 + dt / (L * G)
        pivot = C + dt * (dt / L) * len(self._flows) / D
        x_c: Vector = self._x_c
        moves = self._ends - self._x_c
        J: Vector = np.zeros_like(moves)
        F = self._flows.sum(0)
        for step in range(1, steps + 1):
            before = J
            reached = step / steps
            J = (J - dt / L * (self._x_c + reached * moves)) / D
            x_c = (C * x_c - dt * F - dt * J.sum(0)) / pivot
            J += dt / L / D * x_c
            np.sqrt(np.mean(np.square(J - before), axis=1)).max()  # stands for the truncation error
        self._flows += J
