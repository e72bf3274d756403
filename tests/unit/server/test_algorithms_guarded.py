"""Every algorithm behind the rules against bad clients."""

from typing import Any, get_args

import numpy as np
import pytest

from fedecado.common.layout import Entry, Layout, Vector
from fedecado.server.algorithms import AlgorithmName, Guarded, MemoryVectors, Robust, Update, make_algorithm
from fedecado.server.federation import Federation, Result
from fedecado.server.rounds import Assign, CloseRound, Engine, Enrolled, Rules, UpdateArrived

NAMES: list[AlgorithmName] = list(get_args(AlgorithmName))
RULES = Robust(norm_bound=2.0, trim=0.2)


def updates(start: Vector, bad: float | None) -> list[Update]:
    rng = np.random.default_rng(3)
    ends = start + 0.01 * rng.standard_normal((10, len(start))) - 0.02
    times = rng.uniform(0.05, 0.1, 10)
    if bad is not None:
        ends[0] = bad
    return [Update(f"c{i}", 0, start, ends[i], float(times[i])) for i in range(10)]


def moved(name: AlgorithmName, bad: float | None, robust: Robust | None) -> Vector:
    algorithm: Any = make_algorithm(name, robust=robust)
    start = np.linspace(0, 1, 40)
    state = algorithm.init(start, MemoryVectors())
    gathered = algorithm.gather(state)
    for update in updates(start, bad):
        gathered.add(update)
    after = algorithm.aggregate(state, gathered, 10).finish()
    return np.asarray(after.central - start)


@pytest.mark.parametrize("name", NAMES)
def test_one_wild_client_moves_the_centre_no_further_than_the_honest_differ(name: AlgorithmName) -> None:
    honest = moved(name, None, None)
    wild, guarded = moved(name, 1e4, None), moved(name, 1e4, RULES)
    error = float(np.abs(guarded - honest).max())
    assert error <= 0.02
    assert float(np.abs(wild - honest).max()) > error


def test_rules_that_are_off_leave_the_algorithm_as_it_is() -> None:
    assert not isinstance(make_algorithm("fedecado", robust=Robust()), Guarded)


def test_flows_follow_the_guarded_displacements_and_their_sum_stays_exact() -> None:
    algorithm: Any = make_algorithm("fedecado", robust=RULES)
    start = np.linspace(0, 1, 40)
    state = algorithm.init(start, MemoryVectors())
    for _ in range(5):
        gathered = algorithm.gather(state)
        for update in updates(state.central, 1e4):
            gathered.add(Update(update.client, state.version, update.start, update.end, update.time))
        state = algorithm.aggregate(state, gathered, 12).finish()
    flows = [state.flows.get(f"c{i}") for i in range(10)]
    np.testing.assert_allclose(np.sum(flows, axis=0), state.F, atol=1e-12)
    assert np.abs(flows[0]).max() < 10 * np.median(np.abs(flows[1:]))


def test_the_report_tells_how_many_were_beyond_the_bound() -> None:
    algorithm: Any = make_algorithm("fedavg", robust=Robust(norm_bound=3.0, beyond="accept"))
    state = algorithm.init(np.linspace(0, 1, 40), MemoryVectors())
    gathered = algorithm.gather(state)
    for update in updates(state.central, 1e4):
        gathered.add(update)
    details = algorithm.aggregate(state, gathered, 10).report.details
    assert details["beyond_bound"] == 1
    assert 0.01 < details["median_displacement"] < 0.05


def test_buffers_of_a_bad_client_are_drawn_in() -> None:
    layout = Layout((Entry("w", (3,)), Entry("running_mean", (2,), "buffer")), "float64")
    engine = Engine(Rules(min_clients=5, max_rounds=1))
    federation = Federation(engine, make_algorithm("fedavg", robust=RULES), layout, np.zeros(5))
    for i in range(5):
        effects = engine.handle(Enrolled(f"c{i}", 1))
    tasks = [effect.task for effect in effects if isinstance(effect, Assign)]
    for i, task in enumerate(tasks):
        federation.accept(task, Result(np.full(5, 1e9 if i == 0 else float(i)), 0.1))
        effects = engine.handle(UpdateArrived(engine.tasks[task].client, task))
    (close,) = [effect for effect in effects if isinstance(effect, CloseRound)]
    central = federation.aggregate(close.tasks)
    assert (central[3:] <= 4).all()
