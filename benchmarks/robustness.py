"""Accuracy with bad clients, with and without the rules against them: digits, 10 clients, simulated."""

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.harness import save
from fedecado.client.window import Plan
from fedecado.common.layout import Vector
from fedecado.server.algorithms import AlgorithmName, Robust, make_algorithm
from fedecado.server.federation import Federation, Offer, Result
from fedecado.server.rounds import Engine, Rules
from fedecado.simulator import Simulation, draw_fleet
from fedecado.simulator.fleet import Profile
from fedecado.simulator.learning import Learning

CLIENTS = 10
ALPHAS = (100.0, 1.0)
"""Skew of the labels: data alike, and each client with plenty of few classes."""
ALGORITHMS: tuple[AlgorithmName, ...] = ("fedecado", "fedavg")
Attack = Callable[[Vector, Vector, int], Vector]
"""(start, honest end, task) -> what is sent instead."""


def _nan(start: Vector, end: Vector, task: int) -> Vector:
    return np.full_like(end, np.nan)


def _garbage(start: Vector, end: Vector, task: int) -> Vector:
    return np.random.default_rng(task).standard_normal(len(end)).astype(end.dtype)


def _scaled(start: Vector, end: Vector, task: int) -> Vector:
    return start + 100 * (end - start)


def _flipped(start: Vector, end: Vector, task: int) -> Vector:
    return start - (end - start)


ATTACKS: dict[str, Attack] = {"nan": _nan, "garbage": _garbage, "scaled": _scaled, "flipped": _flipped}
BAD = ((0, "nan"), (2, "nan"), (2, "garbage"), (2, "scaled"), (1, "flipped"), (2, "flipped"))
DEFENCES = {
    "none": Robust(),
    "norm_bound": Robust(norm_bound=2.0),
    "trim": Robust(trim=0.2),
}


class Infiltrated:
    """A workload some of whose clients, the first ones, send what an attack makes of their work."""

    def __init__(self, honest: Learning, bad: int, attack: Attack) -> None:
        self._honest, self._bad, self._attack = honest, bad, attack
        self.layout, self.samples = honest.layout, honest.samples
        self.initial, self.evaluate = honest.initial, honest.evaluate

    def train(self, client: int, offer: Offer, profile: Profile) -> Result:
        result = self._honest.train(client, offer, profile)
        if client >= self._bad:
            return result
        sent = self._attack(offer.state, result.state, offer.task)
        return Result(sent, result.time, result.curvature, result.steps)


@cache
def _learning(alpha: float, seed: int) -> Learning:
    plan = Plan(rate=0.05, seed=seed, epochs=2, loss_samples=0)
    return Learning("fedecado.client.tasks.digits:make", {"alpha": alpha}, CLIENTS, plan=plan)


def accuracy(
    algorithm: AlgorithmName, attack: str, bad: int, robust: Robust, *, alpha: float, rounds: int, seed: int
) -> float:
    """Accuracy after so many rounds."""
    learning = _learning(alpha, seed)
    workload = Infiltrated(learning, bad, ATTACKS[attack])
    rules = Rules(max_rounds=rounds, min_clients=CLIENTS, seed=seed)
    made = make_algorithm(algorithm, robust=robust)
    federation = Federation(Engine(rules), made, learning.layout, learning.initial())
    fleet = draw_fleet(CLIENTS, [0.05, 0.05], [2, 2], seed=seed)
    Simulation(federation, workload, fleet, evaluate_every=rounds).run()
    return workload.evaluate(federation.central)["accuracy"]


def run(quick: bool) -> None:
    seeds, rounds = range(1 if quick else 2), 5 if quick else 20
    points: list[dict[str, Any]] = []
    for algorithm in ALGORITHMS:
        table = Table(title=f"{algorithm}: mean accuracy after {rounds} rounds")
        for column in ("alpha", "bad clients", *DEFENCES):
            table.add_column(column, justify="right")
        for alpha, (bad, attack) in product(ALPHAS, BAD):
            row = []
            for name, robust in DEFENCES.items():
                found = [
                    accuracy(algorithm, attack, bad, robust, alpha=alpha, rounds=rounds, seed=seed)
                    for seed in seeds
                ]
                row.append(f"{np.mean(found):.3f}")
                points.append(
                    {"algorithm": algorithm, "alpha": alpha, "attack": attack, "bad": bad}
                    | {"defence": name, "accuracy": found}
                )
            table.add_row(f"{alpha:g}", f"{bad} {attack}" if bad else "none", *row)
            print(algorithm, alpha, bad, attack, *row, flush=True)
        Console().print(table)
    save("robustness", {"rounds": rounds, "clients": CLIENTS, "points": points})
