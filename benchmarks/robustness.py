"""Accuracy with bad clients, with and without the rules against them: digits, 10 clients, simulated."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.harness import CORES, save
from fedecado.client.window import Plan
from fedecado.common.errors import NumericsError
from fedecado.common.layout import Vector
from fedecado.server.algorithms import AlgorithmName, Options, Robust, make_algorithm
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
BAD = ((0, "none"), *product((1, 2), ATTACKS))
DEFENCES = {
    "none": Robust(),
    "norm_bound": Robust(norm_bound=2.0),
    "trim": Robust(trim=0.2),
    "response": Robust(norm_bound=2.0, response_bound=4.0),
}


class Infiltrated:
    """A workload some of whose clients, the first ones, send what an attack makes of their work."""

    def __init__(self, honest: Learning, bad: int, attack: Attack | None) -> None:
        self._honest, self._bad, self._attack = honest, bad, attack
        self.layout, self.samples = honest.layout, honest.samples
        self.initial, self.evaluate = honest.initial, honest.evaluate

    def train(self, client: int, offer: Offer, profile: Profile) -> Result:
        result = self._honest.train(client, offer, profile)
        if client >= self._bad or self._attack is None:
            return result
        sent = self._attack(offer.state, result.state, offer.task)
        return Result(sent, result.time, result.curvature, result.steps)


class Cell(NamedTuple):
    """One run."""

    alpha: float
    seed: int
    algorithm: AlgorithmName
    bad: int
    attack: str
    defence: str


@cache
def _learning(alpha: float, seed: int) -> Learning:
    plan = Plan(rate=0.05, seed=seed, epochs=2, loss_samples=0)
    return Learning("fedecado.client.tasks.digits:make", {"alpha": alpha}, CLIENTS, plan=plan)


def accuracy(cell: Cell, rounds: int, solver: Options | None = None) -> float:
    """Accuracy after so many rounds; NaN if one of them could not be computed."""
    learning = _learning(cell.alpha, cell.seed)
    workload = Infiltrated(learning, cell.bad, ATTACKS.get(cell.attack))
    rules = Rules(max_rounds=rounds, min_clients=CLIENTS, seed=cell.seed)
    made = make_algorithm(cell.algorithm, solver=solver, robust=DEFENCES[cell.defence])
    federation = Federation(Engine(rules), made, learning.layout, learning.initial())
    fleet = draw_fleet(CLIENTS, [0.05, 0.05], [2, 2], seed=cell.seed)
    try:
        Simulation(federation, workload, fleet, evaluate_every=rounds).run()
    except NumericsError:
        return float("nan")
    return workload.evaluate(federation.central)["accuracy"]


def _cells(seeds: int) -> Iterator[Cell]:
    """Runs on the same data follow each other; one seed is complete before the next one begins."""
    for seed, alpha, algorithm, (bad, attack), defence in product(
        range(seeds), ALPHAS, ALGORITHMS, BAD, DEFENCES
    ):
        if algorithm == "fedecado" or DEFENCES[defence].response_bound is None:
            yield Cell(alpha, seed, algorithm, bad, attack, defence)


def _table(algorithm: AlgorithmName, found: dict[Cell, float], seeds: int, rounds: int) -> Table:
    table = Table(title=f"{algorithm}: mean accuracy after {rounds} rounds")
    for column in ("alpha", "bad clients", *DEFENCES):
        table.add_column(column, justify="right")
    for alpha, (bad, attack) in product(ALPHAS, BAD):
        row = []
        for defence in DEFENCES:
            cells = [Cell(alpha, seed, algorithm, bad, attack, defence) for seed in range(seeds)]
            values = [found[cell] for cell in cells if cell in found]
            row.append(f"{np.mean(values):.3f}" if values else "")
        table.add_row(f"{alpha:g}", f"{bad} {attack}" if bad else "none", *row)
    return table


def run(quick: bool) -> None:
    seeds, rounds = 1 if quick else 2, 5 if quick else 20
    cells, found = list(_cells(seeds)), dict[Cell, float]()
    # The models are small: one thread each, and as many runs as there are cores.
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    began = time.perf_counter()
    with ProcessPoolExecutor(CORES, mp_context=multiprocessing.get_context("spawn")) as pool:
        runs = {pool.submit(accuracy, cell, rounds): cell for cell in cells}
        for done, future in enumerate(as_completed(runs), 1):
            cell = runs[future]
            found[cell] = future.result()
            seconds = time.perf_counter() - began
            print(f"{done}/{len(cells)} {seconds:.0f} s", *cell, f"{found[cell]:.3f}", flush=True)
    for algorithm in ALGORITHMS:
        Console().print(_table(algorithm, found, seeds, rounds))
    points = [{**cell._asdict(), "accuracy": found[cell]} for cell in cells]
    save("robustness", {"rounds": rounds, "clients": CLIENTS, "seconds": seconds, "points": points})
