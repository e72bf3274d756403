"""What the coordinator tells of a flow's move suffices for its client to make the same move."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedecado.server.algorithms import Aggregated, MemoryVectors, Options, Robust, Update, make_algorithm
from fedecado.server.algorithms.fedecado import FedEcado, FedEcadoState
from fedecado.server.numerics import rows
from fedecado.server.numerics.columns import BLOCK

Array = npt.NDArray[Any]
SIZE = BLOCK + 5
CLIENTS = ("ann", "bob", "cyd")


@pytest.fixture(autouse=True)
def formed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for vectors of millions of numbers, rows are not written down."""
    monkeypatch.setattr(rows, "FORMED_BYTES", 1)


def began(dtype: npt.DTypeLike, options: Options | None = None) -> tuple[FedEcado, FedEcadoState]:
    algorithm = FedEcado(options)
    start = np.random.default_rng(0).standard_normal(SIZE).astype(dtype)
    return algorithm, algorithm.init(start, MemoryVectors())


def updates(state: FedEcadoState, seed: int, scale: float = 0.01) -> list[Update]:
    draw = np.random.default_rng(seed)
    made = []
    for client in CLIENTS:
        end = state.central + scale * draw.standard_normal(SIZE).astype(state.central.dtype)
        time, weight, curvature = map(float, draw.uniform([0.05, 0.5, 0.0], [0.3, 2.0, 3.0]))
        made.append(Update(client, state.version, state.central, end, time, weight, curvature))
    return made


def aggregated(
    algorithm: Any, state: FedEcadoState, arrived: list[Update], enrolled: int = len(CLIENTS)
) -> tuple[Aggregated[FedEcadoState], FedEcadoState]:
    gathered = algorithm.gather(state)
    for update in arrived:
        gathered.add(update)
    made = algorithm.aggregate(state, gathered, enrolled)
    return made, made.finish()


def flows(state: FedEcadoState) -> dict[str, Array]:
    found = {client: state.flows.get(client) for client in CLIENTS}
    return {
        client: np.zeros(SIZE, state.central.dtype) if flow is None else flow.copy()
        for client, flow in found.items()
    }


@pytest.mark.parametrize(("dtype", "digits"), [(np.float32, 3e-7), (np.float64, 1e-15)])
@pytest.mark.parametrize("enrolled", [3, 10])
def test_a_client_repeats_what_becomes_of_its_flow(dtype: Any, digits: float, enrolled: int) -> None:
    """From its own vectors and the new centre, to the rounding of one round."""
    algorithm, state = began(dtype)
    for seed in range(5):
        arrived, before = updates(state, seed), flows(state)
        made, after = aggregated(algorithm, state, arrived, enrolled)
        assert set(made.moved) == set(CLIENTS)
        now = flows(after)
        for update in arrived:
            toward, along = (np.dtype(dtype).type(by) for by in made.moved[update.client])
            repeated = before[update.client] + toward * (after.central - update.start)
            repeated -= along * (update.end - update.start)
            room = digits * max(np.abs(vector).max() for vector in (repeated, before[update.client]))
            np.testing.assert_allclose(repeated, now[update.client], rtol=0, atol=4 * room)
        np.testing.assert_allclose(after.F, np.sum(list(now.values()), axis=0, dtype=np.float64), atol=1e-13)
        state = after


def test_flows_that_follow_the_centre_as_published_are_those_of_the_solve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    algorithm, state = began(np.float64)
    arrived = updates(state, 1)
    _, published = aggregated(algorithm, state, arrived)
    monkeypatch.setattr(rows, "FORMED_BYTES", 1 << 40)
    other, beginning = began(np.float64)
    made, solved = aggregated(other, beginning, arrived)
    assert not made.moved, "rows that are written down are not taken apart"
    np.testing.assert_array_equal(published.central, solved.central)
    for client, flow in flows(solved).items():
        np.testing.assert_allclose(flows(published)[client], flow, rtol=1e-12, atol=1e-12)


def test_windows_of_several_steps_and_late_updates_cannot_be_repeated() -> None:
    algorithm, state = began(np.float64, Options(tolerance=1e-6))
    made, after = aggregated(algorithm, state, updates(state, 1))
    assert made.report.details["steps"] > 1 and not made.moved
    algorithm, state = began(np.float64)
    first, after = aggregated(algorithm, state, updates(state, 1))
    late, *others = updates(after, 2)
    late = replace(late, version=0, start=state.central)
    made, _ = aggregated(algorithm, after, [late, *others])
    assert first.moved and not made.moved


def test_guarded_clients_do_not_know_what_counted_of_their_updates() -> None:
    algorithm = make_algorithm("fedecado", robust=Robust(norm_bound=1.5))
    state = algorithm.init(np.zeros(SIZE), MemoryVectors())
    made, _ = aggregated(algorithm, state, updates(state, 1))
    assert not made.moved


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "feddyn"])
def test_other_algorithms_promise_nothing(name: Any) -> None:
    algorithm = make_algorithm(name)
    state = algorithm.init(np.zeros(SIZE), MemoryVectors())
    made, _ = aggregated(algorithm, state, updates(state, 1))
    assert not made.moved
