"""FedECADO as an algorithm: its balance of flows, its order of work, and what one client alone does."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedecado.server.algorithms import MemoryVectors, Options, Update, aggregate_all
from fedecado.server.algorithms.fedecado import FedEcado, FedEcadoState

Array = npt.NDArray[Any]
N, SIZE = 8, 6


def random_updates(
    state: FedEcadoState, draw: np.random.Generator, older: dict[int, Array] | None = None
) -> list[Update]:
    dtype, versions = state.central.dtype, {state.version: state.central, **(older or {})}
    updates = []
    for client in draw.choice(N, size=int(draw.integers(1, N + 1)), replace=False):
        version = int(draw.choice(sorted(versions)))
        end = versions[version] + 0.1 * draw.standard_normal(SIZE).astype(dtype)
        scalars = draw.uniform(0.05, 0.3), draw.uniform(0.5, 2.0), draw.uniform(0.0, 3.0)
        updates.append(Update(f"c{client}", version, versions[version], end, *map(float, scalars)))
    return updates


def run(
    rounds: int, dtype: npt.DTypeLike, options: Options | None = None
) -> tuple[FedEcadoState, MemoryVectors]:
    """Random rounds with starts up to two versions old."""
    algorithm, flows, draw = FedEcado(options), MemoryVectors(), np.random.default_rng(1)
    state, older = algorithm.init(np.zeros(SIZE, dtype), flows), dict[int, Array]()
    for _ in range(rounds):
        updates = random_updates(state, draw, older)
        older = {v: x for v, x in {**older, state.version: state.central}.items() if v > state.version - 2}
        state = aggregate_all(algorithm, state, updates, N)
    return state, flows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("options", [Options(), Options(tolerance=0.01), Options.paper(0.1)])
def test_the_sum_of_flows_is_exact_after_many_rounds(dtype: npt.DTypeLike, options: Options) -> None:
    """F is kept in float64 and moves by what was stored, so it does not drift in float32 either."""
    state, flows = run(100, dtype, options)
    stored = [flow.astype(np.float64) for i in range(N) if (flow := flows.get(f"c{i}")) is not None]
    assert len(stored) == N
    assert all(flow.dtype == np.float64 for flow in (state.F, *stored))
    scale = np.abs(stored).max()
    np.testing.assert_allclose(state.F, np.sum(stored, axis=0), rtol=0, atol=1e-13 * scale)


def test_the_centre_is_ready_before_any_flow_is_written() -> None:
    algorithm, flows, draw = FedEcado(), MemoryVectors(), np.random.default_rng(2)
    state = algorithm.init(np.zeros(SIZE), flows)
    state = aggregate_all(algorithm, state, random_updates(state, draw), N)
    before: dict[str, Any] = {f"c{i}": flows.get(f"c{i}") for i in range(N)}
    before = {client: None if flow is None else flow.copy() for client, flow in before.items()}
    central, F = state.central.copy(), state.F.copy()
    gathered = algorithm.gather(state)
    for update in random_updates(state, draw):
        gathered.add(update)
    aggregated = algorithm.aggregate(state, gathered, N)
    ready = aggregated.central.copy()
    assert not np.array_equal(ready, central)
    for client, flow in before.items():
        np.testing.assert_array_equal(flows.get(client), flow)
    np.testing.assert_array_equal(state.central, central)
    np.testing.assert_array_equal(state.F, F)
    after = aggregated.finish()
    np.testing.assert_array_equal(after.central, ready)
    assert any(flow is not None and (flows.get(c) != flow).any() for c, flow in before.items())
    assert (after.version, after.time) == (state.version + 1, state.time + aggregated.report.time)


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_updates_does_not_matter(seed: int) -> None:
    results: list[tuple[Array, list[Any]]] = []
    for order in ("as drawn", "reversed"):
        algorithm, flows = FedEcado(), MemoryVectors()
        state = algorithm.init(np.ones(SIZE), flows)
        rounds = np.random.default_rng(seed)
        for _ in range(4):
            updates = random_updates(state, rounds)
            state = aggregate_all(algorithm, state, updates[:: 1 if order == "as drawn" else -1], N)
        results.append((state.central, [flows.get(f"c{i}") for i in range(N)]))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-12)
    for one, other in zip(results[0][1], results[1][1], strict=True):
        if one is None:
            assert other is None
        else:
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


def test_the_flow_reaches_its_client_divided_by_the_weight() -> None:
    algorithm, flows = FedEcado(), MemoryVectors()
    state = algorithm.init(np.zeros(2, np.float32), flows)
    assert algorithm.assignment(state, "c", 2.0).drift is None
    flows.put("c", np.array([1.0, -3.0], np.float32))
    given = algorithm.assignment(state, "c", 2.0)
    assert given.drift is not None and given.drift.dtype == np.float32
    np.testing.assert_array_equal(given.drift, [0.5, -1.5])
    assert (given.pull, given.after) == (0.0, 0.0)


def test_what_is_doubted_of_a_flow_is_added_later() -> None:
    algorithm, flows = FedEcado(), MemoryVectors()
    state = replace(algorithm.init(np.zeros(2, np.float32), flows), doubt=0.25)
    flows.put("c", np.array([1.0, -3.0], np.float32))
    given = algorithm.assignment(state, "c", 2.0)
    assert given.after == 0.25 and given.drift is not None
    np.testing.assert_allclose(given.drift, [0.4, -1.2], rtol=1e-6)
    np.testing.assert_allclose((1 + given.after) * given.drift, [0.5, -1.5], rtol=1e-6, err_msg="in all")
    at_once = given.at_once()
    assert at_once.after == 0.0 and at_once.drift is not None
    np.testing.assert_array_equal(at_once.drift, [0.5, -1.5])


def test_forgetting_a_client_takes_its_flow_out_of_the_sum() -> None:
    state, flows = run(20, np.float64)
    gone, before = flows.get("c3"), state.F
    assert gone is not None
    gone, algorithm = gone.copy(), FedEcado()
    state = algorithm.forget(state, "c3")
    np.testing.assert_array_equal(state.F, before - gone)
    assert flows.get("c3") is None
    assert algorithm.forget(state, "c3") is state


def test_the_report_says_what_the_solve_did() -> None:
    algorithm = FedEcado(Options(tolerance=1e-4))
    state = algorithm.init(np.zeros(SIZE), MemoryVectors())
    gathered = algorithm.gather(state)
    for update in random_updates(state, np.random.default_rng(3)):
        gathered.add(update)
    aggregated = algorithm.aggregate(state, gathered, N)
    report = aggregated.report
    details = report.details
    assert report.updates == len(gathered)
    times = [update.time for update in gathered.clients.values()]
    window = math.sqrt(math.fsum(t * t for t in times) / len(times))
    assert report.time == pytest.approx(details["stretch"] * window, rel=1e-14)
    assert details["stretch"] == pytest.approx(1 + details["capacitance"] / len(times))
    assert details["steps"] > 1
    assert details["lu_hits"] + details["lu_misses"] == details["steps"] + details["rejected_steps"]
    assert details["truncation_error"] <= 1e-4
    assert details["shortest_step"] * 2 ** details["step_level"] <= report.time * 2
    after = aggregated.finish()
    moved = np.sqrt(np.mean(np.square(after.central - np.zeros(SIZE))))
    assert details["central_change"] == pytest.approx(moved)
    flows = {c: after.flows.get(c) for c in gathered.clients}
    lengths = {c: np.sqrt(np.mean(np.square(flow))) for c, flow in flows.items() if flow is not None}
    assert report.flows == pytest.approx(lengths) and min(lengths.values()) > 0
    assert details["flow_max"] == pytest.approx(max(lengths.values()))
    assert details["flow_median"] == pytest.approx(np.median(list(lengths.values())))


def test_the_step_level_is_carried_to_the_next_round() -> None:
    algorithm = FedEcado(Options(tolerance=1e-4))
    draw = np.random.default_rng(3)
    state = algorithm.init(np.zeros(SIZE), MemoryVectors())
    state = aggregate_all(algorithm, state, random_updates(state, draw), N)
    assert state.level > 0


def alone(
    gradient: Callable[[Array], Array], start: Array, rate: float, steps: int, rounds: int
) -> list[Array]:
    """The centre's path with a single client: n = a = 1, h = 0, lam = 0, no memory, windows as they are."""
    algorithm = FedEcado(Options(inertia=0.0, horizon="rms", memory=0.0))
    state = algorithm.init(start, MemoryVectors())
    path = [state.central]
    for _ in range(rounds):
        drift, x = algorithm.assignment(state, "only", 1.0).drift, state.central
        for _ in range(steps):
            x = x - rate * (gradient(x) - (0.0 if drift is None else drift))
        update = Update("only", state.version, state.central, x, rate * steps)
        state = aggregate_all(algorithm, state, [update], 1)
        path.append(state.central)
    return path


def sgd(gradient: Callable[[Array], Array], x: Array, rate: float, steps: int, rounds: int) -> list[Array]:
    path = [x]
    for _ in range(rounds):
        for _ in range(steps):
            x = x - rate * gradient(x)
        path.append(x)
    return path


def test_one_client_alone_makes_sgd_steps_of_half_its_rate_on_a_slope() -> None:
    """Centre and client are two equal capacitors that share the client's current.

    So the pair moves at half the speed of the client's plain SGD. On a constant gradient this is exact
    once the flow has settled at half the gradient, which takes a few rounds.
    """
    g = np.array([1.0, -2.0])
    path = alone(lambda x: g, np.zeros(2), rate=0.01, steps=10, rounds=20)
    np.testing.assert_allclose(path[-1] - path[-2], -0.01 / 2 * 10 * g, rtol=1e-9)
    lag = np.abs(path[-1] - sgd(lambda x: g, np.zeros(2), 0.005, 10, 20)[-1])
    assert (lag < 0.1 * 0.01 * 10 * np.abs(g)).all()


def test_one_client_alone_follows_sgd_of_half_its_rate_to_first_order() -> None:
    """On a quadratic, over a fixed simulated time, the gap to that SGD halves with the rate."""
    A = np.diag([1.0, 3.0])
    gaps = []
    for rate in (0.01, 0.005, 0.0025):
        rounds = round(0.2 / rate)
        path = alone(lambda x: A @ x, np.ones(2), rate, 10, rounds)
        plain = sgd(lambda x: A @ x, np.ones(2), rate / 2, 10, rounds)
        gaps.append(np.abs(np.subtract(path, plain)).max())
    assert gaps[0] < 0.03
    assert all(0.4 < fine / coarse < 0.6 for coarse, fine in pairwise(gaps)), gaps


def test_one_client_alone_comes_to_rest_where_sgd_does() -> None:
    A, minimum = np.diag([1.0, 3.0]), np.array([0.7, -1.3])
    path = alone(lambda x: A @ (x - minimum), np.zeros(2), rate=0.02, steps=10, rounds=400)
    np.testing.assert_allclose(path[-1], minimum, rtol=1e-12)
