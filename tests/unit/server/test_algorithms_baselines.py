"""Every baseline against its formula written out again, over rounds with old starts and unequal weights."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedecado.common.errors import ConfigError, NonFiniteError
from fedecado.server.algorithms import Algorithm, MemoryVectors, Update, aggregate_all, make_algorithm
from fedecado.server.algorithms.averaging import fedadam, fedexp
from fedecado.server.numerics import sample

Array = npt.NDArray[Any]
N, SIZE, ROUNDS = 6, 7, 8
WEIGHTS = np.array([0.3, 0.6, 0.9, 1.1, 1.4, 1.7])

Reference = Callable[[Array, int, list[Update]], Array]
"""(x_c, version, updates) -> the new x_c."""


def play(
    algorithm: Algorithm[Any],
    reference: Reference,
    dtype: npt.DTypeLike = np.float64,
    *,
    shuffle: bool = False,
) -> float:
    """Feed both the same random rounds; the largest gap between their centres, relative."""
    draw = np.random.default_rng(5)
    state = algorithm.init(draw.standard_normal(SIZE).astype(dtype), MemoryVectors())
    versions, expected, gap = [state.central], state.central.astype(np.float64), 0.0
    for number in range(ROUNDS):
        updates = []
        for client in draw.choice(N, size=int(draw.integers(1, N + 1)), replace=False):
            version = number - int(draw.integers(0, min(number, 3) + 1))
            end = versions[version] + 0.1 * draw.standard_normal(SIZE).astype(dtype)
            time = draw.uniform(0.1, 0.5)
            updates.append(Update(f"c{client}", version, versions[version], end, time, WEIGHTS[client]))
        expected = reference(expected, number, updates)
        if shuffle:
            draw_order = np.random.default_rng(number).permutation(len(updates))
            updates = [updates[i] for i in draw_order]
        state = aggregate_all(algorithm, state, updates, N)
        assert state.central.dtype == dtype
        assert state.version == number + 1
        gap = max(gap, float(np.abs(state.central - expected).max() / np.abs(expected).max()))
        versions.append(state.central)
    return gap


def shares(updates: list[Update]) -> Array:
    w = np.array([u.weight for u in updates])
    return np.asarray(w / w.sum())


def displacements(updates: list[Update]) -> Array:
    return np.stack([u.end.astype(np.float64) - u.start for u in updates])


def mean_of_ends(x_c: Array, version: int, updates: list[Update]) -> Array:
    return np.asarray(shares(updates) @ np.stack([u.end.astype(np.float64) for u in updates]))


def nova(x_c: Array, version: int, updates: list[Update]) -> Array:
    q, tau = shares(updates), np.array([u.time * u.weight for u in updates])
    return np.asarray(x_c + (q @ tau) * ((q / tau) @ displacements(updates)))


def buffered(x_c: Array, version: int, updates: list[Update]) -> Array:
    discount = np.array([(1 + version - u.version) ** -0.5 for u in updates])
    return np.asarray(x_c + (shares(updates) * discount) @ displacements(updates))


def extrapolated(x_c: Array, version: int, updates: list[Update]) -> Array:
    q, moves = shares(updates), displacements(updates)
    mean = q @ moves
    stretch = (q @ (moves**2).sum(1)) / (2 * ((mean**2).sum() + 1e-3))
    return np.asarray(x_c + max(1.0, stretch) * mean)


def adam() -> Reference:
    moments = [np.zeros(SIZE), np.zeros(SIZE)]

    def step(x_c: Array, version: int, updates: list[Update]) -> Array:
        mean = shares(updates) @ displacements(updates)
        moments[0] = 0.9 * moments[0] + 0.1 * mean
        moments[1] = 0.99 * moments[1] + 0.01 * mean**2
        return np.asarray(x_c + 0.03 * moments[0] / (np.sqrt(moments[1]) + 1e-3))

    return step


def scaffold() -> Reference:
    """c is formed anew from all control variates, not brought up to date."""
    variates = np.zeros((N, SIZE))

    def step(x_c: Array, version: int, updates: list[Update]) -> Array:
        c = WEIGHTS @ variates / N
        for u in updates:
            tau = u.time * u.weight
            variates[int(u.client[1:])] += (u.start - u.end) / tau - c
        return np.asarray(x_c + shares(updates) @ displacements(updates))

    return step


def dynamic(mu: float) -> Reference:
    duals = np.zeros((N, SIZE))

    def step(x_c: Array, version: int, updates: list[Update]) -> Array:
        for u in updates:
            duals[int(u.client[1:])] -= mu * (u.end - u.start)
        return mean_of_ends(x_c, version, updates) - WEIGHTS @ duals / N / mu

    return step


CASES: dict[str, tuple[Callable[[], Algorithm[Any]], Callable[[], Reference]]] = {
    "fedavg": (lambda: make_algorithm("fedavg"), lambda: mean_of_ends),
    "fedprox": (lambda: make_algorithm("fedprox"), lambda: mean_of_ends),
    "fednova": (lambda: make_algorithm("fednova"), lambda: nova),
    "fedbuff": (lambda: make_algorithm("fedbuff"), lambda: buffered),
    "fedexp": (lambda: make_algorithm("fedexp"), lambda: extrapolated),
    "fedadam": (lambda: make_algorithm("fedadam"), adam),
    "scaffold": (lambda: make_algorithm("scaffold"), scaffold),
    "feddyn": (lambda: make_algorithm("feddyn", mu=0.4), lambda: dynamic(0.4)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 2e-5)])
def test_the_centre_follows_the_formula(name: str, dtype: npt.DTypeLike, tolerance: float) -> None:
    algorithm, reference = CASES[name]
    assert play(algorithm(), reference(), dtype) < tolerance


@pytest.mark.parametrize("name", CASES)
def test_the_order_of_updates_does_not_matter(name: str) -> None:
    algorithm, reference = CASES[name]
    assert play(algorithm(), reference(), shuffle=True) < 1e-13


@pytest.mark.parametrize("name", ["fedavg", "fednova", "fedbuff", "fedexp"])
@pytest.mark.parametrize("mine", [False, True])
def test_long_updates_follow_it_too_and_may_be_written_over(name: str, mine: bool) -> None:
    """Nobody has looked at them before they are mixed, and the first one's memory becomes the centre."""
    (algorithm, reference), draw = CASES[name], np.random.default_rng(7)
    x_c, *moves = draw.standard_normal((4, sample.LONG)).astype(np.float32)
    ends = [x_c + move for move in moves]  # in directions of their own, so that FedExP goes further
    rule = algorithm()
    state = rule.init(x_c, MemoryVectors())
    updates = [Update(f"c{i}", 0, x_c, end, 0.1 * (i + 1), WEIGHTS[i]) for i, end in enumerate(ends)]
    expected = reference()(x_c.astype(np.float64), 0, updates)
    gathered = rule.gather(state)
    for update in updates:
        gathered.add(update)
    if mine:
        gathered.place = lambda: ends[0]
    central = rule.aggregate(state, gathered, N).central
    assert (central is ends[0]) == mine
    np.testing.assert_allclose(central, expected, rtol=2e-5, atol=2e-5)


def test_a_bad_long_update_spoils_its_round_and_nothing_else() -> None:
    rule, x_c = make_algorithm("fedavg"), np.zeros(sample.LONG, np.float32)
    state = rule.init(x_c, MemoryVectors())
    gathered = rule.gather(state)
    bad = x_c.copy()
    bad[5] = np.nan
    gathered.add(Update("c0", 0, x_c, bad, 0.1))
    with pytest.raises(NonFiniteError, match="the state is unchanged"):
        rule.aggregate(state, gathered, N)
    assert not state.central.any()


def drift_of(name: Any, weight: float = WEIGHTS[0], **knobs: Any) -> tuple[Array, Array, Array]:
    """The drift of client 0 after a round of all, with every client's displacement and tau."""
    algorithm = make_algorithm(name, **knobs)
    draw = np.random.default_rng(3)
    state = algorithm.init(np.zeros(SIZE), MemoryVectors())
    ends, taus = draw.standard_normal((N, SIZE)), draw.uniform(0.1, 0.5, N)
    updates = [Update(f"c{i}", 0, state.central, ends[i], taus[i] / WEIGHTS[i], WEIGHTS[i]) for i in range(N)]
    state = aggregate_all(algorithm, state, updates, N)
    drift = algorithm.assignment(state, "c0", weight).drift
    assert drift is not None
    return drift, ends, taus


def test_scaffold_hands_out_the_difference_to_the_mean_slope() -> None:
    drift, ends, taus = drift_of("scaffold")
    slopes = -ends / taus[:, None]
    np.testing.assert_allclose(drift, slopes[0] - WEIGHTS @ slopes / N, rtol=1e-12, atol=1e-12)


def test_feddyn_hands_out_the_dual_and_the_pull() -> None:
    drift, ends, _ = drift_of("feddyn", mu=0.4)
    np.testing.assert_allclose(drift, -0.4 * ends[0], rtol=1e-12)
    algorithm = make_algorithm("feddyn", mu=0.4)
    first = algorithm.assignment(algorithm.init(np.zeros(2), MemoryVectors()), "new", 1.0)
    assert (first.pull, first.drift) == (0.4, None)


@pytest.mark.parametrize(("name", "pull"), [("fedprox", 0.25), ("fednova", 0.25)])
def test_the_proximal_pull_reaches_the_clients(name: Any, pull: float) -> None:
    algorithm = make_algorithm(name, mu=pull)
    given = algorithm.assignment(algorithm.init(np.zeros(2), MemoryVectors()), "c", 1.0)
    assert (given.pull, given.drift) == (pull, None)


@pytest.mark.parametrize("name", ["fedavg", "fednova", "fedbuff", "fedadam", "fedexp"])
def test_the_others_leave_the_clients_to_plain_sgd(name: Any) -> None:
    algorithm = make_algorithm(name)
    given = algorithm.assignment(algorithm.init(np.zeros(2), MemoryVectors()), "c", 1.0)
    assert (given.pull, given.drift) == (0.0, None)


@pytest.mark.parametrize("name", ["fedbuff", "fedadam"])
def test_the_server_rate_scales_the_step(name: Any) -> None:
    def moved(rate: float) -> Array:
        algorithm = make_algorithm(name, server_rate=rate)
        state = algorithm.init(np.zeros(2), MemoryVectors())
        update = Update("c", 0, state.central, np.array([1.0, -2.0]), 0.1)
        return np.asarray(aggregate_all(algorithm, state, [update], 1).central)

    np.testing.assert_allclose(moved(0.5), 5 * moved(0.1), rtol=1e-12)


@pytest.mark.parametrize("name", ["scaffold", "feddyn"])
def test_sums_stay_true_when_clients_join_leave_and_change_weight(name: Any) -> None:
    """`total` is the sum of what is stored, whatever n and the weights were when it was stored."""
    algorithm, vectors = make_algorithm(name), MemoryVectors()
    draw = np.random.default_rng(8)
    state = algorithm.init(np.zeros(SIZE, np.float32), vectors)
    for number in range(60):
        active = draw.choice(number + 2, size=min(number + 1, 3), replace=False)
        updates = [
            Update(
                f"c{i}",
                number,
                state.central,
                state.central + draw.standard_normal(SIZE).astype(np.float32),
                0.1,
                float(draw.uniform(0.5, 2.0)),
            )
            for i in active
        ]
        state = aggregate_all(algorithm, state, updates, number + 3)
        if number % 9 == 8:
            state = algorithm.forget(state, f"c{active[0]}")
            assert vectors.get(f"c{active[0]}") is None
    kept = [vectors.get(f"c{i}") for i in range(62)]
    exact = np.sum([v.astype(np.float64) for v in kept if v is not None], axis=0)
    np.testing.assert_allclose(state.total, exact, rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(state.mean(), exact / state.enrolled, rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: make_algorithm("fedprox", mu=-1.0), r"mu is -1\.0"),
        (lambda: make_algorithm("fednova", mu=float("nan")), "mu is nan"),
        (lambda: make_algorithm("feddyn", mu=0.0), r"mu is 0\.0"),
        (lambda: make_algorithm("feddyn", mu=float("inf")), "mu is inf"),
        (lambda: make_algorithm("fedbuff", server_rate=0.0), r"server rate is 0\.0"),
        (lambda: make_algorithm("fedadam", server_rate=float("inf")), "server rate is inf"),
        (lambda: fedadam(beta1=1.0), r"beta1 is 1\.0"),
        (lambda: fedadam(beta2=-0.1), r"beta2 is -0\.1"),
        (lambda: fedadam(floor=0.0), r"floor is 0\.0"),
        (lambda: fedexp(epsilon=0.0), r"epsilon is 0\.0"),
    ],
)
def test_knobs_out_of_range_are_refused_by_name(make: Callable[[], object], names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        make()
