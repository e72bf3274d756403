"""Whole simulated runs: how they end, what goes wrong in them, and real learning."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from fedecado.client.window import Plan
from fedecado.server.algorithms import AlgorithmName, make_algorithm
from fedecado.server.federation import Federation
from fedecado.server.rounds import Engine, Rules, Target
from fedecado.simulator import Fleet, History, Profile, Simulation, Workload, draw_fleet
from fedecado.simulator.learning import Learning
from fedecado.simulator.quadratics import Quadratics

torch.set_num_threads(1)


def simulate(
    workload: Workload, fleet: Fleet, *, algorithm: AlgorithmName = "fedecado", every: int = 1, **rules: Any
) -> tuple[History, Simulation]:
    clients = len(workload.samples)
    federation = Federation(
        Engine(Rules(**{"min_clients": clients, **rules})),
        make_algorithm(algorithm),
        workload.layout,
        workload.initial(),
    )
    simulation = Simulation(federation, workload, fleet, evaluate_every=every)
    return simulation.run(), simulation


def quadratic(**rules: Any) -> tuple[History, Simulation]:
    return simulate(Quadratics(6, seed=1), draw_fleet(6, (0.001, 0.01), (5, 30), seed=1), **rules)


def test_a_run_ends_after_its_rounds_and_its_clock_runs_forward() -> None:
    history, simulation = quadratic(max_rounds=8, active=3)
    assert [record.round for record in history.rounds] == list(range(1, 9))
    assert "all 8 rounds are done" in history.ended
    clocks, times = ([getattr(r, name) for r in history.rounds] for name in ("clock", "time"))
    assert clocks == sorted(clocks) and clocks[0] > 0
    assert times == sorted(times)
    assert simulation.federation.simulated_time == times[-1]
    assert simulation.failures == {}


def test_a_run_ends_at_rest() -> None:
    history, _ = quadratic(max_rounds=2000, rest_tolerance=1e-6, every=2000)
    assert "at rest" in history.ended
    assert history.rounds[-1].rate < 1e-6 <= history.rounds[-2].rate
    assert history.rounds[-1].metrics["distance"] < 1e-3  # the last round is always measured


@pytest.mark.parametrize("mode", ["rounds", "stream"])
def test_a_run_ends_when_its_target_is_reached(mode: str) -> None:
    target = Target("distance", 1e-3, rising=False)
    history, _ = quadratic(max_rounds=2000, target=target, mode=mode, active=4)
    assert "reached distance" in history.ended
    _, distances = history.series("distance")
    assert distances[-1] <= 1e-3 < min(distances[:-1])


def test_metrics_are_measured_on_schedule_and_after_the_last_round() -> None:
    history, _ = quadratic(max_rounds=7, every=3)
    assert history.series("distance")[0] == [3, 6, 7]


def test_a_client_that_diverges_fails_alone_and_is_named() -> None:
    """Its rate is far beyond stability; the others' run goes on without it."""
    fleet = draw_fleet(6, (0.001, 0.01), (5, 30), seed=1)
    wild = Fleet((Profile(rate=1e6, epochs=80, pace=1.0), *fleet.profiles[1:]), seed=1)
    history, simulation = simulate(Quadratics(6, seed=1), wild, max_rounds=5)
    assert list(simulation.failures) == ["client-0"]
    assert "client-0" in simulation.failures["client-0"]
    assert [record.updates for record in history.rounds] == [5] * 5
    assert np.isfinite(simulation.federation.central).all()


@pytest.fixture(scope="module")
def digits() -> Learning:
    plan = Plan(rate=0.1, batch_size=16, loss_samples=64)
    return Learning("fedecado.client.tasks.digits:make", {"partition": "iid"}, 8, plan=plan)


@pytest.mark.parametrize("algorithm", ["fedecado", "fedavg"])
def test_digits_are_learned_in_a_few_rounds(digits: Learning, algorithm: AlgorithmName) -> None:
    fleet = draw_fleet(8, (0.1, 0.1), (2, 2))
    history, _ = simulate(digits, fleet, algorithm=algorithm, max_rounds=8, every=8)
    assert history.metrics()["accuracy"] > 0.85
    assert history.rounds[-1].loss_after < history.rounds[0].loss_before
    assert all(math.isfinite(record.rate) for record in history.rounds)


def test_learning_is_determined_by_its_seed(digits: Learning) -> None:
    fleet = draw_fleet(8, (0.05, 0.1), (1, 2), speed_spread=0.5, dropout=0.1, seed=2)
    centres = []
    for _ in range(2):
        _, simulation = simulate(digits, fleet, max_rounds=2, active=4, every=2, mode="stream")
        centres.append(simulation.federation.central.tobytes())
    assert centres[0] == centres[1]
