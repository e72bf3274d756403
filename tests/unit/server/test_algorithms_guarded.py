"""Every algorithm behind the rules against bad clients."""

from typing import Any, get_args

import numpy as np
import pytest

from fedecado.common.errors import ConfigError
from fedecado.common.layout import Entry, Layout, Vector
from fedecado.server.algorithms import (
    AlgorithmName,
    Guarded,
    MemoryVectors,
    Options,
    Robust,
    Update,
    make_algorithm,
)
from fedecado.server.algorithms.vectors import RESPONSE
from fedecado.server.federation import Federation, Result
from fedecado.server.rounds import Aggregated, Assign, CloseRound, Engine, Enrolled, Rules, UpdateArrived

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


class Quadratics:
    """Ten clients that each want to be elsewhere, two of which send the opposite of their work."""

    def __init__(self, robust: Robust | None, liars: int = 2) -> None:
        rng = np.random.default_rng(5)
        self.algorithm: Any = make_algorithm("fedecado", solver=Options(memory=0.0), robust=robust)
        self.goals = 3 * rng.standard_normal((10, 40))
        self.liars = liars
        self.state = self.algorithm.init(np.zeros(40), MemoryVectors())
        self.reports: list[Any] = []

    def round(self) -> None:
        gathered = self.algorithm.gather(self.state)
        for i, goal in enumerate(self.goals):
            drift = self.algorithm.assignment(self.state, f"c{i}", 1.0).drift
            start = end = self.state.central
            for _ in range(5):
                end = end - 0.05 * (end - goal - (0 if drift is None else drift))
            if i < self.liars:
                end = start - (end - start)
            gathered.add(Update(f"c{i}", self.state.version, start, end, 0.25))
        aggregated = self.algorithm.aggregate(self.state, gathered, 10)
        self.state = aggregated.finish()
        self.reports.append(aggregated.report)

    def distance(self) -> float:
        """From where the honest clients' gradients cancel."""
        return float(np.linalg.norm(self.state.central - self.goals[self.liars :].mean(axis=0)))


BELIEF = Robust(response_bound=4.0)


def test_clients_that_go_against_their_flows_do_not_move_the_point_of_rest() -> None:
    """Their goals differ as much as with skewed data: no comparison of pulls finds the two."""
    guarded, trimmed = Quadratics(BELIEF), Quadratics(Robust(trim=0.2))
    for _ in range(150):
        guarded.round()
        trimmed.round()
    assert [sorted(report.distrusted) for report in guarded.reports[:2]] == [[], ["c0", "c1"]]
    assert all(report.distrusted == {"c0", "c1"} for report in guarded.reports[1:])
    assert guarded.reports[-1].details["distrusted"] == 2
    assert guarded.distance() < 0.05
    assert trimmed.distance() > 1


def test_honest_clients_with_other_goals_are_believed_to_the_bit() -> None:
    guarded, plain = Quadratics(BELIEF, liars=0), Quadratics(None, liars=0)
    for _ in range(60):
        guarded.round()
        plain.round()
    assert not any(report.distrusted for report in guarded.reports)
    np.testing.assert_array_equal(guarded.state.central, plain.state.central)


def test_flows_have_no_memory_where_responses_are_listened_to() -> None:
    for robust, memory in ((BELIEF, 0.0), (Robust(trim=0.2), 1.0)):
        made: Any = make_algorithm("fedecado", solver=Options(memory=1.0), robust=robust)
        assert made.inner.options.memory == memory


def test_flows_still_balance_when_some_are_not_believed() -> None:
    guarded = Quadratics(BELIEF)
    for _ in range(20):
        guarded.round()
    flows = [guarded.state.flows.get(f"c{i}") for i in range(10)]
    np.testing.assert_allclose(np.sum(flows, axis=0), guarded.state.F, atol=1e-12)
    assert {"flow_median", "flow_max"} <= guarded.reports[-1].details.keys()


def test_what_is_remembered_of_a_client_is_forgotten_with_it() -> None:
    guarded = Quadratics(BELIEF)
    guarded.round()
    assert guarded.state.flows.get(RESPONSE + "c3") is not None
    state = guarded.algorithm.forget(guarded.state, "c3")
    assert state.flows.get(RESPONSE + "c3") is None
    assert state.flows.get("c3") is None


def test_the_rule_is_refused_where_there_are_no_flows() -> None:
    with pytest.raises(ConfigError, match="response_bound"):
        make_algorithm("fedavg", robust=BELIEF)


def test_buffers_of_a_client_that_is_not_believed_do_not_count() -> None:
    layout = Layout((Entry("w", (1,)), Entry("running_mean", (1,), "buffer")), "float64")
    engine = Engine(Rules(min_clients=5, max_rounds=3))
    federation = Federation(engine, make_algorithm("fedecado", robust=BELIEF), layout, np.zeros(2))
    for i in range(5):
        effects = engine.handle(Enrolled(f"c{i}", 1))
    for _ in range(3):
        tasks = [effect.task for effect in effects if isinstance(effect, Assign)]
        for task in tasks:
            client, offer = engine.tasks[task].client, federation.offer(task)
            drift = 0.0 if offer.assignment.drift is None else float(offer.assignment.drift[0])
            start = float(offer.state[0])
            rate = (drift - (start - 1)) * (-1 if client == "c0" else 1)
            buffer = 1e9 if client == "c0" else 7.0
            federation.accept(task, Result(np.array([start + 0.1 * rate, buffer]), 0.1))
            effects = engine.handle(UpdateArrived(client, task))
        (close,) = [effect for effect in effects if isinstance(effect, CloseRound)]
        central = federation.aggregate(close.tasks)
        report = federation.commit(close.tasks)
        effects = engine.handle(Aggregated(report.rate))
    assert report.distrusted == {"c0"}
    assert central[1] == 7.0
