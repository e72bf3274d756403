"""Accuracy with bad clients, with and without the rules against them; on the simulator, digits, 10 clients."""

from collections.abc import Callable
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
DEFENCES = {
    "none": Robust(),
    "norm_bound": Robust(norm_bound=2.0),
    "trim": Robust(trim=0.2),
    "both": Robust(norm_bound=2.0, trim=0.2),
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


def accuracy(
    algorithm: AlgorithmName, attack: str, bad: int, robust: Robust, *, alpha: float, rounds: int, seed: int
) -> float:
    """Accuracy after so many rounds; NaN when the run could not go on."""
    plan = Plan(rate=0.05, seed=seed, epochs=2)
    learning = Learning("fedecado.client.tasks.digits:make", {"alpha": alpha}, CLIENTS, plan=plan)
    workload = Infiltrated(learning, bad, ATTACKS[attack])
    rules = Rules(max_rounds=rounds, min_clients=CLIENTS, seed=seed)
    made = make_algorithm(algorithm, robust=robust)
    federation = Federation(Engine(rules), made, learning.layout, learning.initial())
    fleet = draw_fleet(CLIENTS, [0.05, 0.05], [2, 2], seed=seed)
    simulation = Simulation(federation, workload, fleet, evaluate_every=rounds)
    try:
        simulation.run()
    except ArithmeticError:
        return float("nan")
    return workload.evaluate(federation.central)["accuracy"]


def run(quick: bool) -> None:
    seeds = range(1 if quick else 3)
    rounds = 5 if quick else 40
    points: list[dict[str, Any]] = []
    for algorithm in ("fedecado", "fedavg"):
        table = Table(title=f"{algorithm}: mean accuracy after {rounds} rounds")
        for column in ("alpha", "bad clients", *DEFENCES):
            table.add_column(column, justify="right")
        for alpha in (1.0,) if quick else (100.0, 1.0):
            for attack, bad in [("nan", 0), *((attack, bad) for attack in ATTACKS for bad in (1, 2))]:
                scores = []
                for name, robust in DEFENCES.items():
                    found = [
                        accuracy(algorithm, attack, bad, robust, alpha=alpha, rounds=rounds, seed=seed)
                        for seed in seeds
                    ]
                    scores.append(float(np.mean(found)))
                    points.append(
                        {"algorithm": algorithm, "alpha": alpha, "attack": attack, "bad": bad}
                        | {"defence": name, "accuracy": found}
                    )
                words = f"{bad} {attack}" if bad else "none"
                table.add_row(f"{alpha:g}", words, *(f"{score:.3f}" for score in scores))
        Console().print(table)
    save("robustness", {"rounds": rounds, "clients": CLIENTS, "points": points})
