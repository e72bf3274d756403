"""What cannot be aggregated is refused by name, and leaves no trace in the round or in the state."""

import math
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest

from fedecado.common.errors import (
    DuplicateClientError,
    FedecadoError,
    LayoutError,
    NonFiniteError,
    NoUpdatesError,
    WindowError,
)
from fedecado.server.algorithms import (
    Algorithm,
    AlgorithmName,
    MemoryVectors,
    Update,
    aggregate_all,
    make_algorithm,
)
from fedecado.server.numerics.finite import squared_length

Array = npt.NDArray[Any]
SIZE, N = 6, 5
NAMES: tuple[AlgorithmName, ...] = get_args(AlgorithmName)
OLD = np.full(SIZE, 0.25, np.float32)


def update(client: int, state: Any, seed: int = 0) -> Update:
    draw = np.random.default_rng((seed, client))
    end = state.central + draw.standard_normal(SIZE).astype(np.float32)
    return Update(f"c{client}", state.version, state.central, end, 0.1 + 0.02 * client, 1.0, 0.5)


def started(name: AlgorithmName) -> tuple[Algorithm[Any], Any, MemoryVectors]:
    """An algorithm with one round behind it, so that every kind of state is there."""
    algorithm, vectors = make_algorithm(name), MemoryVectors()
    state = algorithm.init(np.zeros(SIZE, np.float32), vectors)
    state = aggregate_all(algorithm, state, [update(i, state) for i in range(3)], N)
    return algorithm, state, vectors


def spoiled(vector: Array, value: float) -> Array:
    result = vector.copy()
    result[2] = value
    return result


def snapshot(state: Any, vectors: MemoryVectors) -> dict[str, bytes]:
    arrays = {name: getattr(state, name, None) for name in ("central", "F", "total")}
    arrays |= {f"c{i}": vectors.get(f"c{i}") for i in range(N)}
    arrays |= {f"moment{i}": moment for i, moment in enumerate(getattr(state, "moments", ()))}
    return {name: array.tobytes() for name, array in arrays.items() if array is not None}


BAD: dict[str, tuple[dict[str, Any], type[FedecadoError], str]] = {
    "NaN in the end state": ({"end": math.nan}, NonFiniteError, "'c3'.*1 of 6 values"),
    "infinity in the end state": ({"end": -math.inf}, NonFiniteError, "'c3'.*index 2"),
    "too large for float32": ({"end": 1e25}, NonFiniteError, r"'c3'.*1e\+25.*float32"),
    "from an old version": (
        {"end": math.nan, "version": 0, "start": OLD},
        NonFiniteError,
        "'c3'.*1 of 6 values",
    ),
    "zero window": ({"time": 0.0}, WindowError, r"'c3'.*0\.0"),
    "negative window": ({"time": -1.0}, WindowError, r"'c3'.*-1\.0"),
    "NaN window": ({"time": math.nan}, WindowError, "'c3'.*nan"),
    "absurdly short window": ({"time": 1e-300}, WindowError, "'c3'.*1e-300.*between 1e-12 and"),
    "absurdly long window": ({"time": 1e300}, WindowError, r"'c3'.*1e\+300.*and 1e\+12"),
    "infinite window": ({"time": math.inf}, WindowError, "'c3'.*inf"),
    "zero weight": ({"weight": 0.0}, NonFiniteError, r"'c3' has weight 0\.0"),
    "absurd weight": ({"weight": 1e200}, NonFiniteError, r"'c3' has weight 1e\+200"),
    "NaN weight": ({"weight": math.nan}, NonFiniteError, "'c3' has weight nan"),
    "negative curvature": ({"curvature": -2.0}, NonFiniteError, r"'c3'.*curvature -2\.0"),
    "absurd curvature": ({"curvature": 1e200}, NonFiniteError, r"'c3'.*curvature 1e\+200"),
    "infinite curvature": ({"curvature": math.inf}, NonFiniteError, "'c3'.*curvature inf"),
    "a client twice": ({"client": "c1"}, DuplicateClientError, "'c1' already"),
    "wrong length": ({"end": np.zeros(SIZE + 1, np.float32)}, LayoutError, r"'c3' is float32\[7\]"),
    "wrong dtype": ({"end": np.zeros(SIZE)}, LayoutError, r"'c3' is float64\[6\].*float32\[6\]"),
    "wrong start": ({"start": np.zeros(2, np.float32)}, LayoutError, r"start state of client 'c3'"),
}


def spoil(good: Update, changes: dict[str, Any]) -> Update:
    changes = dict(changes)
    if isinstance(changes.get("end"), float):
        changes["end"] = spoiled(good.end, changes["end"])
    return replace(good, **changes)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", BAD)
def test_a_bad_update_is_named_and_leaves_no_trace(name: AlgorithmName, case: str) -> None:
    """The round then gives the very bits that it gives where the bad update never came."""
    changes, error, message = BAD[case]
    results = []
    for disturbed in (True, False):
        algorithm, state, vectors = started(name)
        gathered = algorithm.gather(state)
        gathered.add(update(0, state, seed=1))
        gathered.add(update(1, state, seed=1))
        before = snapshot(state, vectors)
        if disturbed:
            with pytest.raises(error, match=message):
                gathered.add(spoil(update(3, state, seed=1), changes))
        assert snapshot(state, vectors) == before
        assert list(gathered.clients) == ["c0", "c1"]
        gathered.add(update(3, state, seed=1))  # a good one of the same client is welcome
        gathered.add(replace(update(4, state, seed=1), version=0, start=OLD))
        state = algorithm.aggregate(state, gathered, N).finish()
        results.append(snapshot(state, vectors))
    assert results[0] == results[1]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", BAD)
def test_a_bad_update_among_several_is_named_when_they_are_taken_in_at_once(
    name: AlgorithmName, case: str
) -> None:
    changes, error, message = BAD[case]
    algorithm, state, vectors = started(name)
    before = snapshot(state, vectors)
    updates, gathered = [update(i, state, seed=1) for i in (0, 1, 3)], algorithm.gather(state)
    with pytest.raises(error, match=message):
        gathered.hold([*updates[:2], spoil(updates[2], changes)])
        algorithm.aggregate(state, gathered, N)
    assert snapshot(state, vectors) == before


@pytest.mark.parametrize("name", NAMES)
def test_a_round_without_updates_is_refused(name: AlgorithmName) -> None:
    algorithm, state, vectors = started(name)
    before = snapshot(state, vectors)
    with pytest.raises(NoUpdatesError, match="at least one"):
        algorithm.aggregate(state, algorithm.gather(state), N)
    assert snapshot(state, vectors) == before


@pytest.mark.parametrize("name", NAMES)
def test_a_round_of_one_client_works(name: AlgorithmName) -> None:
    algorithm, vectors = make_algorithm(name), MemoryVectors()
    state = algorithm.init(np.zeros(SIZE, np.float32), vectors)
    for _ in range(3):
        state = aggregate_all(algorithm, state, [update(0, state)], 1)
    assert state.version == 3
    assert np.isfinite(state.central).all()
    assert state.central.any()


def test_a_stored_flow_that_is_damaged_is_refused() -> None:
    algorithm, state, vectors = started("fedecado")
    vectors.put("c3", spoiled(np.zeros(SIZE, np.float32), math.nan))
    gathered = algorithm.gather(state)
    with pytest.raises(NonFiniteError, match=r"'c3'.*flow"):
        gathered.add(update(3, state))
    gathered.add(update(0, state))
    assert np.isfinite(algorithm.aggregate(state, gathered, N).central).all()
    with pytest.raises(NonFiniteError, match=r"'c3'.*flow"):
        algorithm.gather(state).hold([update(i, state) for i in (0, 1, 3)])


def test_a_flow_is_read_for_its_length_only_if_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is known from when the flow was written; a vector that came from elsewhere is measured, once."""
    read: list[int] = []

    def measured(vector: Any) -> float:
        read.append(len(vector))
        return squared_length(vector)

    monkeypatch.setattr("fedecado.server.algorithms.vectors.squared_length", measured)
    algorithm, state, vectors = started("fedecado")
    for _ in range(2):
        gathered = algorithm.gather(state)
        gathered.add(update(0, state))
        assert gathered.flow_squares() == pytest.approx([squared_length(np.asarray(vectors.get("c0")))])
    assert read == []
    vectors.put("c0", np.full(SIZE, 2.0, np.float32))
    for _ in range(2):
        gathered = algorithm.gather(state)
        gathered.add(update(0, state))
        assert gathered.flow_squares() == [4.0 * SIZE]
    assert read == [SIZE]
    state = algorithm.forget(state, "c0")
    gathered = algorithm.gather(state)
    gathered.add(update(0, state))
    assert gathered.flow_squares() == [0.0]


OVERFLOWING = {"fedecado": (0.1, 1e-6), "fednova": (1e12, 1e-12)}


@pytest.mark.parametrize("name", OVERFLOWING)
def test_results_beyond_float32_are_refused_before_anything_changes(name: Any) -> None:
    """Each vector is fine by itself, but a huge displacement in a tiny window has no usable slope."""
    longest, window = OVERFLOWING[name]
    results = []
    for disturbed in (True, False):
        algorithm, state, vectors = started(name)
        before = snapshot(state, vectors)
        if disturbed:
            gathered = algorithm.gather(state)
            gathered.add(replace(update(0, state), time=longest))
            good = update(1, state)
            gathered.add(replace(good, end=good.end + np.float32(1e18), time=window))
            with pytest.raises(NonFiniteError):
                algorithm.aggregate(state, gathered, N)
        assert snapshot(state, vectors) == before
        state = aggregate_all(algorithm, state, [update(0, state), update(2, state)], N)
        results.append(snapshot(state, vectors))
    assert results[0] == results[1]


EXTREMES: list[dict[str, Any]] = [
    {"time": 1e-12},
    {"time": 1e12},
    {"weight": 1e-12},
    {"weight": 1e12},
    {"curvature": 1e12},
    {"time": 1e-12, "weight": 1e12, "curvature": 1e12},
    {"time": 1e12, "weight": 1e-12, "curvature": 0.0},
]


@pytest.mark.parametrize("number", range(len(EXTREMES)))
@pytest.mark.parametrize("name", NAMES)
def test_scalars_at_the_ends_of_their_ranges_do_not_spoil_a_round(name: AlgorithmName, number: int) -> None:
    """Not even beside a client at the other end."""
    for other in EXTREMES[-2:]:
        algorithm, state, vectors = started(name)
        updates = [replace(update(0, state), **EXTREMES[number]), replace(update(1, state), **other)]
        after = aggregate_all(algorithm, state, [*updates, update(2, state)], N)
        assert np.isfinite(after.central).all()
        assert all(v is None or np.isfinite(v).all() for v in map(vectors.get, ("c0", "c1", "c2")))
