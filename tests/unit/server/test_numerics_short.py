"""Rounds in one compiled call, against the same rounds as the general solve computes them."""

import math
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from compiled import using
from hypothesis import given, settings
from hypothesis import strategies as st

from fedecado.common.errors import NonFiniteError
from fedecado.server.algorithms import MemoryVectors, Options, Report, Update
from fedecado.server.algorithms.fedecado import FedEcado, FedEcadoState
from fedecado.server.numerics import native
from fedecado.server.numerics.finite import squared_length
from fedecado.server.numerics.native import LEVELS
from fedecado.server.numerics.short import CLIENTS

Array = npt.NDArray[Any]

needs_compiler = pytest.mark.skipif(
    native.kernels() is None, reason="fedecado was installed without a C compiler"
)


class Round:
    """A state in the middle of a run, the same each time it is made, and updates to it."""

    def __init__(
        self, a: int, size: int, seed: int, *, absent: int = 0, dtype: npt.DTypeLike = np.float32
    ) -> None:
        draw, self.flows = np.random.default_rng((seed, a, size)), MemoryVectors()
        self.enrolled, F = a + absent + int(draw.integers(0, 3)), np.zeros(size)
        central = draw.standard_normal(size).astype(dtype)
        for i in range(a + absent):
            if i >= a or draw.random() < 0.7:  # else it has not been here before
                flow = draw.normal(0, 0.5, size).astype(dtype)
                self.flows.put(f"c{i}", flow)
                F += flow
        self.state = FedEcadoState(
            central,
            self.flows,
            F,
            pace=float(draw.choice([0.25, 1.0, 3.0])),
            window=float(draw.choice([0.0, 0.05, 0.4])),
            visits=2.0,
            doubt=float(draw.choice([0.0, 0.4])),
            version=5,
            time=3.0,
        )
        curved = float(draw.choice([0.0, 1e-3, 0.3, 20.0]))
        self.updates = [
            Update(
                f"c{i}",
                version=5,
                start=central,
                end=central + draw.normal(0, 0.05, size).astype(dtype) if draw.random() < 0.9 else central,
                time=float(draw.uniform(0.02, 0.3)),
                weight=float(draw.lognormal(0, 0.5)),
                curvature=curved * float(draw.random()),
            )
            for i in range(a)
        ]

    def end(self, options: Options, *, at_once: bool) -> tuple[Report, FedEcadoState, bool]:
        """The report and the state after the round, and whether it was computed at once."""
        algorithm = FedEcado(options)
        gathered = algorithm.gather(self.state, len(self.updates))
        gathered.hold(self.updates)
        if not at_once:
            assert gathered.basis.slots  # whoever has looked at the vectors may have changed them
        aggregated = algorithm.aggregate(self.state, gathered, self.enrolled)
        was_at_once = gathered.untouched
        state = aggregated.finish()
        assert state.central is aggregated.central
        return aggregated.report, state, was_at_once


OPTIONS = st.builds(
    Options,
    rho=st.sampled_from([1.0, 1.7, math.inf]),
    inertia=st.sampled_from([0.0, 0.3, 1.0]),
    memory=st.sampled_from([0.0, 1.0]),
    kappa=st.sampled_from([1.0, 0.3]),
    inductance=st.sampled_from([None, 0.002]),
    window=st.sampled_from(["own", "common"]),
    late=st.sampled_from(["heavier", "alike"]),
    tolerance=st.just(1e6),
)


@pytest.mark.parametrize("level", LEVELS)
@settings(deadline=None)
@given(
    a=st.integers(1, CLIENTS),
    size=st.sampled_from([20, 33, 64, 511, 512, 513, 1500]),
    seed=st.integers(0, 10_000),
    absent=st.integers(0, 4),
    options=OPTIONS,
)
def test_a_round_at_once_is_the_round_that_the_solver_computes(
    level: str, a: int, size: int, seed: int, absent: int, options: Options
) -> None:
    with using(level):
        first = Round(a, size, seed, absent=absent).end(options, at_once=True)
        second = Round(a, size, seed, absent=absent).end(options, at_once=False)
    assert (first[2], second[2]) == (True, False)
    _same(first, second)


def _same(
    first: tuple[Report, FedEcadoState, bool], second: tuple[Report, FedEcadoState, bool], near: float = 1e-5
) -> None:
    """To the rounding of float32, of which rows and their inner products are."""
    reports = [asdict(report) for report, _, _ in (first, second)]
    assert reports[0].pop("distrusted") == reports[1].pop("distrusted")
    details = [report.pop("details") for report in reports]
    flows = [report.pop("flows") for report in reports]
    for found, expected in (reports, details, flows):
        assert found.keys() == expected.keys()
        for name in found.keys() - {"lu_hits", "lu_misses"}:
            # Agreement and errors are differences, and may be all rounding.
            assert found[name] == pytest.approx(expected[name], rel=10 * near, abs=near), name
    assert sum(details[0][name] for name in ("lu_hits", "lu_misses")) == 1
    for name in ("level", "pace", "window", "visits", "doubt", "version", "time"):
        values = [getattr(state, name) for _, state, _ in (first, second)]
        assert values[0] == pytest.approx(values[1], rel=10 * near, abs=near), name
    states = first[1], second[1]
    assert states[0].flows.clients() == states[1].flows.clients()
    pairs = [(states[0].central, states[1].central), (states[0].F, states[1].F)]
    pairs += [(states[0].flows.get(c), states[1].flows.get(c)) for c in states[0].flows.clients()]  # type: ignore[misc] # they have one
    for one, other in pairs:
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=0, atol=20 * near * max(1.0, float(np.abs(other).max())))


@needs_compiler
def test_an_absurd_horizon_is_reined_in_alike() -> None:
    """Stiff clients that have come to rest: the pace falls below what they ask for."""
    made = [Round(4, 600, 1), Round(4, 600, 1)]
    for each in made:
        each.state = replace(each.state, pace=8.0)
        each.updates = [replace(update, curvature=0.1) for update in each.updates]
    options = Options(tolerance=1e6)
    first, second = made[0].end(options, at_once=True), made[1].end(options, at_once=False)
    assert first[2]
    assert first[1].pace < 4.0
    _same(first, second)


@pytest.mark.parametrize("level", LEVELS)
def test_what_a_round_at_once_stores_goes_on_to_the_bit(level: str) -> None:
    """Lengths of flows are those that a coordinator takes again after a restart; F is the flows' sum."""
    with using(level):
        _goes_on_to_the_bit()


def _goes_on_to_the_bit() -> None:
    made = Round(5, 700, 3, absent=2)
    report, state, at_once = made.end(Options(), at_once=True)
    assert at_once
    for client, strength in report.flows.items():
        flow = state.flows.get(client)
        assert flow is not None
        assert strength == math.sqrt(squared_length(flow) / 700)
    stored = [
        flow.astype(np.float64) for c in state.flows.clients() if (flow := state.flows.get(c)) is not None
    ]
    assert len(stored) == 7
    np.testing.assert_allclose(state.F, np.sum(stored, axis=0), rtol=0, atol=1e-13)
    alone = Round(5, 700, 3).end(Options(), at_once=True)[1]
    stored = [
        flow.astype(np.float64) for c in alone.flows.clients() if (flow := alone.flows.get(c)) is not None
    ]
    np.testing.assert_allclose(alone.F, np.sum(stored, axis=0), rtol=0, atol=1e-14)


@needs_compiler
def test_nothing_changes_until_the_round_is_finished() -> None:
    made, algorithm = Round(3, 100, 0, absent=1), FedEcado()
    for vector in (made.state.central, made.state.F, *(made.flows.get(c) for c in made.flows.clients())):
        assert vector is not None
        vector.flags.writeable = False
    gathered = algorithm.gather(made.state)
    gathered.hold(made.updates)
    before = {client: made.flows.get(client) for client in made.flows.clients()}
    aggregated = algorithm.aggregate(made.state, gathered, made.enrolled)
    assert gathered.untouched
    assert {client: made.flows.get(client) for client in made.flows.clients()} == before
    after = aggregated.finish()
    assert all(after.flows.get(update.client) is not before.get(update.client) for update in made.updates)


def no_change(made: Round) -> None:
    pass


def one_is_late(made: Round) -> None:
    made.updates[1] = replace(made.updates[1], version=4, start=made.updates[1].start - np.float32(0.01))


def short_steps(made: Round) -> None:
    made.state = replace(made.state, level=2)


def not_in_one_piece(made: Round) -> None:
    made.updates[1] = replace(made.updates[1], end=np.repeat(made.updates[1].end, 2)[::2])


NOT_AT_ONCE = {
    "late": (3, 100, one_is_late, Options()),
    "short steps": (3, 100, short_steps, Options()),
    "in pieces": (3, 100, not_in_one_piece, Options()),
    "many": (CLIENTS + 1, 100, no_change, Options()),
    "fewer parameters than rows": (3, 3, no_change, Options()),
    "a tight tolerance": (3, 100, no_change, Options(tolerance=1e-6)),
    "the largest error": (3, 100, no_change, Options(norm="max")),
    "a fixed horizon": (3, 100, no_change, Options(horizon="rms")),
    "another reach": (3, 100, no_change, Options(reach="fixed")),
    "the paper": (3, 100, no_change, Options.paper(0.1)),
}


@pytest.mark.parametrize("case", NOT_AT_ONCE)
def test_other_rounds_are_left_to_the_solver(case: str) -> None:
    a, size, change, options = NOT_AT_ONCE[case]
    made = Round(a, size, 0)
    change(made)
    report, state, at_once = made.end(options, at_once=True)
    assert not at_once
    assert report.updates == a
    assert np.isfinite(state.central).all()


def test_float64_is_left_to_the_solver() -> None:
    assert not Round(3, 100, 0, dtype=np.float64).end(Options(), at_once=True)[2]


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_a_bad_vector_is_named(value: float) -> None:
    made = Round(3, 100, 0)
    end = made.updates[1].end.copy()
    end[7] = value
    made.updates[1] = replace(made.updates[1], end=end)
    with pytest.raises(NonFiniteError, match="update of client 'c1'"):
        made.end(Options(), at_once=True)


@pytest.mark.parametrize("tolerance", [0.1, 1e300])
def test_a_round_that_leaves_the_range_is_told(tolerance: float) -> None:
    made = Round(3, 100, 0)
    made.updates[1] = replace(made.updates[1], end=made.updates[1].end + np.float32(1e18))
    with pytest.raises(NonFiniteError, match="left the range of float32"):
        made.end(Options(tolerance=tolerance), at_once=True)
