"""Element values of a round's circuit, and the ranges of the solver's options."""

import math
from dataclasses import fields, replace
from typing import Any, Literal, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.common.errors import ConfigError, NonFiniteError, NoUpdatesError, NumericsError, WindowError
from fedecado.server.numerics.circuit import FOLLOW, STABLE, Circuit, Moves, Timescale
from fedecado.server.numerics.options import LEAST, Late, Options

GOOD: dict[str, Any] = {
    "times": [0.1, 0.2, 0.4],
    "curvatures": [1.0, 0.0, 2.0],
    "weights": [0.5, 1.0, 1.5],
    "enrolled": 10,
}


def build(options: Options | None = None, **changes: Any) -> Circuit:
    return Circuit.build(**{**GOOD, **changes}, options=options or Options())


def test_sensitivities_take_the_time_that_each_trajectory_spans() -> None:
    circuit = build(Options(rho=1.5, reach="fixed", horizon="longest"))
    spans = np.array([0.15, 0.3, 0.4])  # min(T, rho T_i)
    np.testing.assert_allclose(circuit.G, 1 / spans + np.array([0.5, 0.0, 3.0]), rtol=1e-15)
    assert circuit.T == 0.4


@pytest.mark.parametrize(
    "options",
    [
        Options(window="common", horizon="rms"),
        Options(rho=math.inf, reach="fixed", horizon="rms"),
    ],
)
def test_sensitivities_take_the_common_window_on_request_and_without_a_bound(options: Options) -> None:
    np.testing.assert_allclose(build(options).G, 1 / math.sqrt(0.07) + np.array([0.5, 0.0, 3.0]), rtol=1e-15)


BENT = {"times": [0.1, 0.2, 0.4, 0.1], "curvatures": [0.5, 0.0, 0.9, 9.0], "weights": [1.0] * 4}
"""Straight for 0.1 / (w h T_i) = 2 lengths of its own, for ever, and for no more than is always safe."""


def test_each_trajectory_reaches_to_a_share_of_its_time_constant_within_its_bounds() -> None:
    circuit = build(Options(rho=4.0, reach="curvature", horizon="longest"), **BENT)
    np.testing.assert_allclose(circuit.rho, [2.0, 4.0, 1.2, 1.2])
    np.testing.assert_allclose(1 / (circuit.G - BENT["curvatures"]), [0.2, 0.4, 0.4, 0.12])
    np.testing.assert_array_equal(build(Options(rho=1.1, reach="curvature", horizon="rms")).rho, 1.1)
    fixed, flat = Options(rho=4.0, reach="fixed", inertia=0.0), {"curvatures": [0.0] * 3}
    np.testing.assert_array_equal(build(replace(fixed, horizon="rms")).rho, 4.0)
    # The stretch is the pace times 1 + C / a, here 4 / 3.
    np.testing.assert_allclose(build(fixed, **flat, timescale=Timescale(3.0)).rho, 16.0)
    np.testing.assert_array_equal(build(fixed, **flat, timescale=Timescale(0.5)).rho, 4.0)


def test_sensitivities_take_the_time_that_a_trajectory_is_straight_for_however_far_it_is_extrapolated() -> (
    None
):
    circuit = build(Options(rho=1.0, horizon="longest"), **BENT)
    np.testing.assert_allclose(1 / (circuit.G - BENT["curvatures"]), [0.2, 0.4, 0.4, 0.12])


@pytest.mark.parametrize(
    ("lengths", "rho", "bound"),
    [
        ([1.0, 1.0, 1.0], 1.0, [5 / 3] * 3),
        # As far as the root mean square of the lengths, and 2 / 3 more, for there are only three.
        ([1.0, 2.0, 2.0], 1.0, [5 / 3 * 3**0.5, 5 / 6 * 3**0.5, 5 / 6 * 3**0.5]),
        ([1.0, 2.0, 9.0], 1.0, [5 / 3 * (86 / 3) ** 0.5, 5 / 6 * (86 / 3) ** 0.5, 1.2]),
        ([1.0, 2.0, 2.0], 2.0, [10 / 3 * 3**0.5, 5 / 3 * 3**0.5, 5 / 3 * 3**0.5]),
        ([0.0, 1.0, 1.0], 1.0, [1.2, 5 / 3 * (2 / 3) ** 0.5, 5 / 3 * (2 / 3) ** 0.5]),  # none to extrapolate
        ([1.0, 2.0, 2.0], math.inf, [math.inf] * 3),
        ((), 2.0, [10 / 3] * 3),
    ],
)
def test_short_windows_are_extrapolated_to_what_the_others_went(
    lengths: list[float], rho: float, bound: list[float]
) -> None:
    circuit = build(Options(rho=rho, horizon="rms"), curvatures=[0.0] * 3, moves=Moves(lengths))
    np.testing.assert_allclose(circuit.rho, bound, rtol=1e-7)


@given(st.lists(st.floats(1e-6, 1e6), min_size=3, max_size=3), st.floats(0.25, 16.0))
def test_nobody_with_a_window_like_the_others_is_held_back(lengths: list[float], pace: float) -> None:
    given = {"times": [0.2] * 3, "curvatures": [0.0] * 3}
    circuit = build(Options(rho=1.0), **given, moves=Moves(lengths), timescale=Timescale(pace))
    assert (circuit.rho * (1 + 1e-12) >= circuit.T / circuit.times).all()


STIFF = {"times": [1.0] * 10, "curvatures": [1.0] * 10, "weights": [1.0] * 10}


@pytest.mark.parametrize("enrolled", [10, 40, 100])
def test_the_horizon_is_no_longer_than_stiff_directions_bear(enrolled: int) -> None:
    def stretch(pace: float, parameters: int) -> tuple[float, float, float]:
        circuit = build(
            Options(reach="fixed", rho=99.0),
            **STIFF,
            enrolled=enrolled,
            timescale=Timescale(pace, window=1.0),
            moves=Moves(parameters=parameters),
        )
        return circuit.T, circuit.pace, STABLE * (2 + 4 * circuit.C / 10)

    T, pace, limit = stretch(8.0, 10_000)
    assert pytest.approx(limit) == T and pace < 8.0, "and the pace goes on from there"
    T, pace, limit = stretch(0.3, 10_000)
    assert limit > T and pace == 0.3
    assert stretch(8.0, 0)[1] == 8.0, "where nobody comes to rest nothing swings"


def test_no_limit_takes_the_pace_below_its_least() -> None:
    circuit = build(
        **{**STIFF, "times": [1e-6] * 9 + [1.0]},
        enrolled=10,
        options=Options(rho=math.inf, reach="fixed"),
        timescale=Timescale(1.0),
        moves=Moves(parameters=10**9),
    )
    assert circuit.pace == LEAST


FLAT = {"curvatures": [0.0] * 3}


def test_the_horizon_is_the_rms_of_the_windows_or_the_longest() -> None:
    rms = math.sqrt((0.1**2 + 0.2**2 + 0.4**2) / 3)
    np.testing.assert_allclose(build(Options(horizon="rms")).T, rms, rtol=1e-15)
    assert build(Options(horizon="longest")).T == 0.4
    assert pytest.approx(0.3, rel=1e-15) == build(Options(horizon="rms"), times=[0.3, 0.3, 0.3]).T


@pytest.mark.parametrize(("inertia", "C"), [(0.0, 1.0), (0.2, 2.4), (1.0, 8.0)])
def test_a_round_adds_as_much_as_its_windows_however_heavy_the_centre_is(inertia: float, C: float) -> None:
    options = Options(inertia=inertia)
    circuit = build(options, **FLAT, timescale=Timescale(1.5))
    assert pytest.approx(1.5 * (1 + C / 3) * circuit.window) == circuit.T
    late = build(options, **FLAT, timescale=Timescale(1.5, staleness=4.0))
    assert late.T == circuit.T, "what is heavier for being late is slower"


def test_a_horizon_that_adapts_follows_the_windows_of_a_round_a_fifth_of_the_way() -> None:
    options = Options(inertia=0.0)
    first = build(options, **FLAT, times=[0.3, 0.3, 0.3])
    long = build(options, **FLAT, times=[0.3, 0.3, 96.0], timescale=Timescale(2.0, first.window))
    rms = math.sqrt((0.3**2 + 0.3**2 + 96.0**2) / 3)
    assert long.window == pytest.approx(0.3 * (rms / 0.3) ** FOLLOW)
    assert pytest.approx(2 * 4 / 3 * long.window) == long.T
    window = first.window
    for _ in range(40):
        window = build(times=[0.03, 0.03, 0.03], timescale=Timescale(window=window)).window
    assert window == pytest.approx(0.03, rel=1e-3), "a fleet that lowers its rates is followed"
    others: tuple[tuple[Literal["rms", "longest"], float], ...] = (("rms", rms), ("longest", 96.0))
    for horizon, now in others:
        fixed = build(
            Options(horizon=horizon), times=[0.3, 0.3, 96.0], timescale=Timescale(window=first.window)
        )
        assert (fixed.T, fixed.window) == pytest.approx((now, now)), "others take each round as it is"


def test_inductance_follows_critical_damping_unless_given() -> None:
    circuit = build(Options(kappa=2.0))
    np.testing.assert_allclose(circuit.L, 2.0 * np.mean(1 / circuit.G) ** 2 / 12, rtol=1e-15)
    assert build(Options(inductance=0.7, kappa=2.0)).L == 0.7


@pytest.mark.parametrize(
    ("visits", "windows", "more"), [(0, 0, 0), (0.5, 0.5, 0), (2, 1.4, 0.6), (99, 1.4, 1.4)]
)
def test_flows_look_back_on_the_windows_there_have_been(visits: float, windows: float, more: float) -> None:
    timescale = Timescale(visits=visits, staleness=1.0)
    assert build(Options(memory=2.0), timescale=timescale).memory == pytest.approx((1.4, windows, more)), (
        "2, times 7 / 10"
    )
    assert build(Options(memory=0.0), timescale=timescale).memory == (0.0, 0.0, 0.0)
    assert build(Options(memory=2.0), timescale=timescale, enrolled=3).memory[0] == 0.0, "nobody is absent"


@pytest.mark.parametrize(("staleness", "windows", "more"), [(0, 0, 0), (0.5, 0.35, 0.175), (2, 0.7, 1.4)])
def test_flows_look_further_back_the_later_clients_answer(
    staleness: float, windows: float, more: float
) -> None:
    late = Timescale(visits=99.0, staleness=staleness)
    assert build(Options(memory=1.0), timescale=late).memory == pytest.approx((0.7, windows, more))
    assert build(Options(memory=1.0, late="alike"), timescale=late).memory == pytest.approx((0.7, 0.0, 0.0))


@pytest.mark.parametrize(("inertia", "expected"), [(0.0, 1.0), (0.1, 1.7), (1.0, 8.0)])
def test_absent_clients_load_the_centre_with_their_inertia(inertia: float, expected: float) -> None:
    np.testing.assert_allclose(build(Options(inertia=inertia)).C, expected, rtol=1e-15)
    heavier, alike = (
        build(Options(inertia=inertia, late=rule), timescale=Timescale(staleness=2.0)).C
        for rule in get_args(Late)
    )
    np.testing.assert_allclose(heavier - 1, 3 * (expected - 1), rtol=1e-14)
    assert alike == build(Options(inertia=inertia)).C


def test_a_round_of_one_client_has_a_circuit() -> None:
    circuit = build(times=[0.5], curvatures=[0.0], weights=[1.0], enrolled=1)
    assert (circuit.T, circuit.C, circuit.L) == (1.0, 1.0, 0.25)


@pytest.mark.parametrize(
    ("changes", "error", "names"),
    [
        ({"times": [], "curvatures": [], "weights": []}, NoUpdatesError, "at least one"),
        ({"enrolled": 2}, NumericsError, "3 updates from 2"),
        ({"times": [0.1, 0.0, 0.4]}, WindowError, "0.0"),
        ({"times": [0.1, -2.0, 0.4]}, WindowError, "-2.0"),
        ({"times": [0.1, math.nan, 0.4]}, WindowError, "nan"),
        ({"times": [0.1, math.inf, 0.4]}, WindowError, "inf"),
        ({"weights": [0.5, 0.0, 1.5]}, NonFiniteError, "weights.*0.0"),
        ({"weights": [0.5, math.nan, 1.5]}, NonFiniteError, "weights.*nan"),
        ({"curvatures": [1.0, -1.0, 2.0]}, NonFiniteError, "curvatures.*-1.0"),
        ({"curvatures": [1.0, math.inf, 2.0]}, NonFiniteError, "curvatures.*inf"),
        ({"times": [1e300, 1.0, 1.0], "curvatures": [0.0, 0.0, 0.0]}, NonFiniteError, "floating-point range"),
        ({"curvatures": [1e308, 0.0, 0.0], "weights": [10.0, 1.0, 1.0]}, NonFiniteError, "1e\\+308"),
    ],
)
def test_scalars_out_of_range_raise_and_are_named(
    changes: dict[str, Any], error: type[NumericsError], names: str
) -> None:
    with pytest.raises(error, match=names):
        build(**changes)


ALLOWED: dict[str, list[Any]] = {
    "rho": [1.0, 1.2, math.inf],
    "reach": ["length", "curvature", "fixed"],
    "horizon": ["adaptive", "rms", "longest"],
    "inertia": [0.0, 1.0],
    "memory": [0.0, 0.5, 100.0],
    "kappa": [1e-3, 10.0],
    "inductance": [None, 1e-3, 5.0],
    "tolerance": [1e-9, 10.0],
    "norm": ["rms", "max"],
    "window": ["own", "common"],
    "absent": ["held", "ignored"],
    "late": ["heavier", "alike"],
    "max_level": [0, 30],
}
REFUSED: dict[str, list[Any]] = {
    "rho": [0.99, -1.0, math.nan],
    "reach": ["far"],
    "horizon": ["shortest", None],
    "inertia": [-0.1, 1.1, math.nan],
    "memory": [-0.1, math.inf, math.nan],
    "kappa": [0.0, -1.0, math.inf, math.nan],
    "inductance": [0.0, -1.0, math.inf, math.nan],
    "tolerance": [0.0, -1.0, math.inf, math.nan],
    "norm": ["l2", None],
    "window": ["", None],
    "absent": ["dropped", None],
    "late": ["lighter", None],
    "max_level": [-1, 31],
}


def test_every_option_has_its_range_tested() -> None:
    assert ALLOWED.keys() == REFUSED.keys() == {field.name for field in fields(Options)}


@pytest.mark.parametrize(("name", "value"), [(k, v) for k, values in ALLOWED.items() for v in values])
def test_values_in_range_are_accepted(name: str, value: Any) -> None:
    assert getattr(Options(**{name: value}), name) == value


@pytest.mark.parametrize(("name", "value"), [(k, v) for k, values in REFUSED.items() for v in values])
def test_values_out_of_range_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value!r}; it must be"):
        Options(**{name: value})


def test_the_published_choices_can_be_selected() -> None:
    paper = Options.paper(inductance=0.3)
    assert paper == Options(
        rho=math.inf,
        reach="fixed",
        horizon="longest",
        inertia=0.0,
        inductance=0.3,
        norm="max",
        window="common",
        absent="ignored",
        late="alike",
        memory=0.0,
    )
