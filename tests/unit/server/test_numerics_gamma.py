"""Trajectories on the common window: Gamma_i(tau) = start + min(tau / T_i, rho) (end - start)."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedecado.server.numerics.gamma import fraction, gamma

times = st.floats(1e-3, 1e3)
bounds = st.floats(1.0, 4.0) | st.just(math.inf)
shares = st.floats(0.0, 1.0)
numbers = st.floats(-100.0, 100.0)


def at(tau: float, start: float, end: float, T_i: float, rho: float) -> float:
    rows = np.array([[start]]), np.array([[end - start]])
    return float(gamma(tau, *rows, np.array([T_i]), rho)[0, 0])


@given(T_i=times, rho=bounds, start=numbers, end=numbers)
def test_gamma_is_exact_at_both_ends_of_the_client_window(
    T_i: float, rho: float, start: float, end: float
) -> None:
    assert at(0.0, start, end, T_i, rho) == start
    assert at(T_i, start, end, T_i, rho) == start + (end - start)


@given(T_i=times, rho=bounds, one=shares, other=shares, start=numbers, end=numbers)
def test_gamma_is_linear_up_to_the_bound(
    T_i: float, rho: float, one: float, other: float, start: float, end: float
) -> None:
    """Affine in tau: the value half-way between two times is the mean of their values."""
    longest = T_i * min(rho, 10.0)
    values = [at(s * longest, start, end, T_i, rho) for s in (one, other, (one + other) / 2)]
    assert math.isclose((values[0] + values[1]) / 2, values[2], rel_tol=1e-9, abs_tol=1e-9)


@given(T_i=times, rho=bounds, taus=st.lists(st.floats(0.0, 1e4), min_size=2, max_size=8))
def test_the_fraction_is_monotone_and_bounded_by_rho(T_i: float, rho: float, taus: list[float]) -> None:
    fractions = [float(fraction(tau, np.array([T_i]), rho)[0]) for tau in sorted(taus)]
    assert fractions == sorted(fractions)
    assert all(0 <= f <= rho for f in fractions)


@given(T_i=times, rho=st.floats(1.0, 4.0), beyond=st.floats(1.0, 1e3), start=numbers, end=numbers)
def test_beyond_the_bound_the_trajectory_stands_still(
    T_i: float, rho: float, beyond: float, start: float, end: float
) -> None:
    expected = start + rho * (end - start)
    assert math.isclose(at(rho * beyond * T_i, start, end, T_i, rho), expected, rel_tol=1e-9, abs_tol=1e-9)


def test_an_infinite_bound_extrapolates_for_ever() -> None:
    assert at(1000.0, 1.0, 3.0, 2.0, math.inf) == 1.0 + 500 * 2.0


def test_every_client_keeps_its_own_time() -> None:
    starts, moves = np.zeros((3, 2)), np.ones((3, 2))
    result = gamma(1.0, starts, moves, np.array([0.5, 1.0, 4.0]), 1.2)
    np.testing.assert_array_equal(result[:, 0], [1.2, 1.0, 0.25])
