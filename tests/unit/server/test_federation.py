"""A run without its network: versions, late updates, buffers, and rounds that are given up."""

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedecado.common.errors import LayoutError, NonFiniteError, RoundError, WindowError
from fedecado.common.layout import Entry, Layout
from fedecado.server.algorithms import AlgorithmName, Gather, MemoryVectors, make_algorithm
from fedecado.server.federation import Federation, Result
from fedecado.server.rounds import (
    Aggregated,
    Assign,
    CloseRound,
    DeadlinePassed,
    Discarded,
    DropVersion,
    Effect,
    Engine,
    Enrolled,
    Event,
    Rules,
    UpdateArrived,
)
from fedecado.server.store import Landing

Array = npt.NDArray[Any]
LAYOUT = Layout((Entry("w", (3,)), Entry("running_mean", (2,), "buffer")), "float64")
START = np.array([1.0, 2.0, 3.0, 10.0, 20.0])
SAMPLES = {"ann": 10, "bob": 30, "cyd": 20}


class Run:
    """A federation, the tasks that its clients hold, and the round that is to be aggregated."""

    def __init__(
        self,
        algorithm: AlgorithmName = "fedecado",
        layout: Layout = LAYOUT,
        start: Array = START,
        **rules: Any,
    ) -> None:
        rules = {"min_clients": 3, "deadline": 60.0, **rules}
        self.vectors = MemoryVectors()
        self.federation = Federation(
            Engine(Rules(**rules)), make_algorithm(algorithm), layout, start.copy(), self.vectors
        )
        self.tasks: dict[str, int] = {}
        self.closed: tuple[int, ...] = ()
        for client, samples in SAMPLES.items():
            self.tell(Enrolled(client, samples))

    def tell(self, event: Event) -> list[Effect]:
        effects = self.federation.engine.handle(event)
        for effect in effects:
            match effect:
                case Assign(task, client):
                    self.tasks[client] = task
                case CloseRound(_, tasks):
                    self.closed = tasks
                case DropVersion(version):
                    self.federation.drop(version)
                case _:
                    pass
        return effects

    def deliver(self, client: str, end: Array, time: float = 0.1, landing: Landing | None = None) -> None:
        task = self.tasks[client]
        result = Result(np.asarray(end, np.float64), time, landing=landing)
        self.federation.check(task, result)
        # Before the engine hears of it: its answer may close the round.
        self.federation.accept(task, result)
        self.tell(UpdateArrived(client, task))

    def close(self) -> Array:
        central = self.federation.aggregate(self.closed)
        report = self.federation.commit(self.closed)
        self.tell(Aggregated(report.rate))
        return central


def test_an_offer_holds_what_the_client_starts_from() -> None:
    run = Run()
    offer = run.federation.offer(run.tasks["bob"])
    np.testing.assert_array_equal(offer.state, START)
    assert (offer.version, offer.weight, offer.assignment.drift) == (0, 1.5, None)


def test_buffers_are_averaged_by_weight() -> None:
    run = Run("fedavg")
    for client in ("cyd", "ann", "bob"):
        run.deliver(client, np.array([1, 2, 3, SAMPLES[client], -SAMPLES[client]]))
    central = run.close()
    mean = (10 * 10 + 30 * 30 + 20 * 20) / 60
    np.testing.assert_allclose(central, [1, 2, 3, mean, -mean], rtol=1e-14)
    np.testing.assert_array_equal(run.federation.central, central)


PLAIN = Layout((Entry("w", (3,)),), "float64")


def averaged(
    algorithm: AlgorithmName, *, spends: bool, landing: Any = None, layout: Layout = PLAIN
) -> tuple[list[Array], Array]:
    """What three clients sent, as it is after their round, and the new centre."""
    run = Run(algorithm, layout, START[: layout.size])
    run.federation.spends_updates = spends
    ends = [START[: layout.size] + k * np.eye(5)[k, : layout.size] for k in range(3)]
    for client, end in zip(SAMPLES, ends, strict=True):
        run.deliver(client, end, landing=landing)
    return ends, run.close()


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "fednova", "fedbuff", "fedexp"])
def test_an_averaged_centre_takes_the_memory_of_the_first_update(algorithm: AlgorithmName) -> None:
    (first, *others), central = averaged(algorithm, spends=True)
    assert np.shares_memory(central, first)
    before, kept = averaged(algorithm, spends=False)
    assert not any(np.shares_memory(kept, end) for end in before)
    np.testing.assert_array_equal(central, kept)
    np.testing.assert_array_equal(others, before[1:])


@pytest.mark.parametrize("algorithm", ["fedecado", "scaffold", "feddyn"])
def test_updates_that_are_looked_at_again_stay_as_they_are(algorithm: AlgorithmName) -> None:
    ends, central = averaged(algorithm, spends=True)
    assert not any(np.shares_memory(central, end) for end in ends)
    np.testing.assert_array_equal(ends, averaged(algorithm, spends=False)[0])


def test_a_state_with_buffers_keeps_its_memory() -> None:
    ends, central = averaged("fedavg", spends=True, layout=LAYOUT)
    assert not any(np.shares_memory(central, end) for end in ends)
    np.testing.assert_array_equal(ends[0], START)


@pytest.mark.parametrize("flushed", [True, False])
def test_an_update_is_written_over_only_when_it_is_on_the_disk(tmp_path: Path, flushed: bool) -> None:
    def flush(descriptor: int) -> None:
        if not flushed:
            raise OSError("no space left")

    with ThreadPoolExecutor(1) as executor:
        landing = Landing(tmp_path / "update.part", 24, "float64", executor, flush)
        landing.reached(24)
        (first, *_), central = averaged("fedavg", spends=False, landing=landing)
    assert np.shares_memory(central, first) == flushed


@pytest.mark.parametrize("eager", [True, False])
def test_buffers_keep_their_weights_whatever_was_absorbed_first(
    eager: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Federation, "eager", eager)
    run = Run("fedavg")
    for client in ("cyd", "ann", "bob"):
        run.deliver(client, np.array([SAMPLES[client], 2, 3, SAMPLES[client], 0]))
    run.federation.absorb((run.tasks["bob"],))
    run.federation.absorb((run.tasks["ann"], run.tasks["cyd"]))
    central = run.close()
    np.testing.assert_allclose(central[[0, 3]], (10 * 10 + 30 * 30 + 20 * 20) / 60, rtol=1e-14)


@pytest.mark.parametrize("algorithm", ["fedecado", "scaffold", "fedavg"])
@pytest.mark.parametrize("eager", [True, False])
def test_absorbing_updates_ahead_changes_nothing(
    algorithm: AlgorithmName, eager: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Federation, "eager", eager)
    results = []
    for ahead in (True, False):
        run = Run(algorithm)
        for client, samples in SAMPLES.items():
            run.deliver(client, START + samples)
            if ahead:
                run.federation.absorb(tuple(run.federation.engine.ready))
        results.append(run.close())
    np.testing.assert_array_equal(results[0], results[1])


def test_a_late_update_counts_with_its_true_start() -> None:
    run = Run("fedbuff")
    run.deliver("ann", START + np.eye(5)[0])
    run.deliver("bob", START + np.eye(5)[0])
    run.tell(DeadlinePassed(1))
    second = run.close()
    np.testing.assert_allclose(second[:3], [2.0, 2.0, 3.0])
    assert run.federation.versions_held == [0, 1]
    run.deliver("cyd", START + 8 * np.eye(5)[1])  # started from version 0
    run.tell(DeadlinePassed(2))
    third = run.close()
    # Its displacement from version 0, discounted by 1 / sqrt(1 + staleness).
    np.testing.assert_allclose(third[:3], second[:3] + 8 / math.sqrt(2) * np.eye(3)[1])


def test_versions_are_dropped_when_no_task_needs_them() -> None:
    run = Run("fedavg")
    for client in ("ann", "bob"):
        run.deliver(client, START)
    run.tell(DeadlinePassed(1))
    run.close()
    assert run.federation.versions_held == [0, 1]  # cyd still works on version 0
    for client in ("cyd", "ann", "bob"):
        run.deliver(client, START)
    run.close()
    assert run.federation.versions_held == [2]
    run.federation.drop(2)
    assert run.federation.versions_held == [2]  # the newest stays


def test_the_centre_is_not_official_before_the_commit() -> None:
    run = Run()
    for client in SAMPLES:
        run.deliver(client, START + 1)
    before = run.federation.central.copy()
    central = run.federation.aggregate(run.closed)
    assert (run.federation.version, run.federation.simulated_time) == (0, 0.0)
    np.testing.assert_array_equal(run.federation.central, before)
    assert all(run.vectors.get(client) is None for client in SAMPLES)
    run.federation.commit(run.closed)
    assert run.federation.version == 1
    assert run.federation.simulated_time == pytest.approx(0.1 * 4 / 3)
    np.testing.assert_array_equal(run.federation.central, central)
    assert all(run.vectors.get(client) is not None for client in SAMPLES)


def test_a_discarded_round_leaves_the_state_as_it_was() -> None:
    results = []
    for disturbed in (True, False):
        run = Run()
        if disturbed:
            for client in SAMPLES:
                run.deliver(client, START - 5)
            run.federation.aggregate(run.closed)
            run.federation.discard(run.closed)
            run.tell(Discarded())
            with pytest.raises(RoundError, match="aggregate first"):
                run.federation.commit(run.closed)
            np.testing.assert_array_equal(run.federation.central, START)
            assert run.federation.version == 0
        for client, samples in SAMPLES.items():
            run.deliver(client, START + samples)
        results.append(run.close())
    np.testing.assert_array_equal(results[0], results[1])


def test_forgetting_a_client_takes_its_flow_out_of_the_balance() -> None:
    """The flows of absent clients are held; those of one that left for good no longer count."""
    centres = {}
    for forgotten in (True, False):
        run = Run(active=3)
        for client, samples in SAMPLES.items():
            run.deliver(client, START + samples)
        run.close()
        if forgotten:
            run.federation.forget("cyd")
        assert (run.vectors.get("cyd") is None) == forgotten
        for client in ("ann", "bob"):
            run.deliver(client, run.federation.central)
        run.tell(DeadlinePassed(2))
        centres[forgotten] = run.close()
    assert np.abs(centres[True] - centres[False])[:3].max() > 0.1


@pytest.mark.parametrize("eager", [True, False])
def test_forgetting_a_client_drops_its_update_of_the_open_round(
    eager: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Federation, "eager", eager)
    results = []
    for disturbed in (True, False):
        run = Run("fedavg")
        if disturbed:
            run.deliver("cyd", START + 100)
            run.federation.absorb((run.tasks["cyd"],))
            run.federation.forget("cyd")
        tasks = tuple(run.tasks[client] for client in ("ann", "bob"))
        run.deliver("ann", START + 1)
        run.deliver("bob", START + 2)
        results.append(run.federation.aggregate(tasks))
    np.testing.assert_array_equal(results[0], results[1])


BAD: dict[str, tuple[Result, type[Exception], str]] = {
    "NaN parameter": (Result(START * [1, math.nan, 1, 1, 1], 0.1), NonFiniteError, "'ann'.*NaN"),
    "infinite buffer": (Result(START * [1, 1, 1, 1, math.inf], 0.1), NonFiniteError, "'ann'.*buffer"),
    "overflow": (Result(START * 1e200, 0.1), NonFiniteError, "'ann'.*too large"),
    "wrong length": (Result(START[:4], 0.1), LayoutError, "'ann'.*same model"),
    "wrong dtype": (Result(START.astype(np.float32), 0.1), LayoutError, "'ann'.*float64"),
    "zero window": (Result(START, 0.0), WindowError, r"'ann'.*0\.0"),
    "NaN curvature": (Result(START, 0.1, math.nan), NonFiniteError, "'ann'.*nan"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_result_that_cannot_be_used_is_named_and_changes_nothing(case: str) -> None:
    result, error, message = BAD[case]
    run = Run()
    with pytest.raises(error, match=message):
        run.federation.check(run.tasks["ann"], result)
    for client in SAMPLES:
        run.deliver(client, START + 1)
    reference = Run()
    for client in SAMPLES:
        reference.deliver(client, START + 1)
    np.testing.assert_array_equal(run.close(), reference.close())


def test_a_result_for_no_open_task_is_refused() -> None:
    with pytest.raises(RoundError, match="task 99 is not open"):
        Run().federation.check(99, Result(START, 0.1))


@pytest.mark.parametrize("initial", [START * math.nan, START * 1e300])
def test_a_run_does_not_start_from_a_state_that_is_not_finite(initial: Array) -> None:
    with pytest.raises(NonFiniteError, match="initial state"):
        Federation(Engine(Rules()), make_algorithm("fedavg"), LAYOUT, initial)


def test_results_are_known_until_the_round_is_committed() -> None:
    run = Run()
    for client in SAMPLES:
        run.deliver(client, START + 1)
    named = [client for client, _ in run.federation.results(run.closed)]
    assert named == list(SAMPLES)


def test_an_update_is_taken_in_once_however_often_its_round_is_absorbed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each arrival has the whole round absorbed; to go through it each time would take n squared steps."""
    run, plain = Run(), Federation._current_gather
    looked: list[int] = []
    monkeypatch.setattr(Federation, "eager", True)

    def gather(self: Federation, tasks: int) -> Gather:
        looked.append(tasks)
        return plain(self, tasks)

    monkeypatch.setattr(Federation, "_current_gather", gather)
    for number, client in enumerate(SAMPLES, start=1):
        run.federation.accept(run.tasks[client], Result(START + number, 1.0))
        run.federation.absorb(tuple(run.tasks[name] for name in list(SAMPLES)[:number]))
    assert len(looked) == 2 * len(SAMPLES), "one for the update, one for the answer"
