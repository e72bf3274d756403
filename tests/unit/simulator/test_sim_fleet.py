"""How simulated clients differ, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest

from fedecado.common.errors import ConfigError
from fedecado.server.algorithms import Assignment
from fedecado.server.federation import Offer
from fedecado.simulator import Fleet, Profile, draw_fleet
from fedecado.simulator.quadratics import Quadratics


def test_profiles_are_drawn_within_their_ranges_and_by_seed() -> None:
    fleet = draw_fleet(200, (0.001, 0.01), (5, 30), speed_spread=0.5, seed=1)
    rates, epochs = [p.rate for p in fleet.profiles], [p.epochs for p in fleet.profiles]
    assert 0.001 <= min(rates) < 0.0015 and 0.0095 < max(rates) <= 0.01
    assert (min(epochs), max(epochs)) == (5, 30)
    assert len({p.pace for p in fleet.profiles}) == 200
    assert fleet == draw_fleet(200, (0.001, 0.01), (5, 30), speed_spread=0.5, seed=1)
    assert fleet != draw_fleet(200, (0.001, 0.01), (5, 30), speed_spread=0.5, seed=2)


def test_without_a_spread_all_clients_have_the_same_pace() -> None:
    assert {p.pace for p in draw_fleet(10, (0.1, 0.1), (2, 2)).profiles} == {1.0}


def test_durations_and_outages_depend_on_client_and_task_alone() -> None:
    fleet = Fleet((Profile(0.1, 4, 0.5), Profile(0.1, 4, 0.5)), dropout=0.5, seed=3)
    asked = [(client, task) for client in (0, 1) for task in range(50)]
    first = [(fleet.duration(*pair), fleet.outage(*pair)) for pair in asked]
    again = [(fleet.duration(*pair), fleet.outage(*pair)) for pair in reversed(asked)]
    assert first == again[::-1]
    assert len({duration for duration, _ in first}) == 100
    assert np.mean([duration for duration, _ in first]) == pytest.approx(4 * 0.5, rel=0.1)
    gone = [outage for _, outage in first if outage is not None]
    assert 30 < len(gone) < 70
    assert all(0 <= share < 1 and away > 0 for share, away in gone)


def test_a_reliable_fleet_has_no_outages() -> None:
    fleet = draw_fleet(3, (0.1, 0.2), (1, 2))
    assert all(fleet.outage(client, task) is None for client in range(3) for task in range(20))


@pytest.mark.parametrize(
    "changes",
    [
        {"rates": (0.0, 1.0)},
        {"rates": (0.2, 0.1)},
        {"rates": (0.1, math.inf)},
        {"rates": (math.nan, 1.0)},
        {"epochs": (0, 3)},
        {"epochs": (4, 3)},
        {"speed_spread": -1.0},
        {"speed_spread": math.nan},
        {"dropout": 1.0},
        {"dropout": -0.1},
        {"dropout": math.nan},
    ],
)
def test_values_out_of_range_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        draw_fleet(3, **{"rates": (0.1, 0.2), "epochs": (1, 2), **changes})


@pytest.mark.parametrize("changes", [{"absence": 0.0}, {"jitter": -1.0}, {"jitter": math.nan}])
def test_circumstances_out_of_range_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="absence must be positive and jitter 0 or more"):
        Fleet((), **changes)


def test_a_quadratic_client_makes_the_steps_that_every_client_makes() -> None:
    """x <- x - eta (grad f(x) + mu (x - x_start) - b), in the end after tau b, and T_i is tau / w_i."""
    q, draw = Quadratics(3, size=4, seed=2), np.random.default_rng(0)
    start, drift = draw.standard_normal(4), draw.standard_normal(4)
    offer = Offer(0, 0, start, 1.6, Assignment(pull=0.3, kept=drift * 1.25, after=0.25))
    result = q.train(1, offer, Profile(rate=0.02, epochs=9, pace=1.0))
    x = start.copy()
    for _ in range(9):
        x = x - 0.02 * (q.gradient(1, x) + 0.3 * (x - start) - drift)
    x += 0.25 * 9 * 0.02 * drift
    np.testing.assert_allclose(result.state, x, rtol=1e-12)
    assert result.time == pytest.approx(9 * 0.02 / 1.6, rel=1e-15)
    assert result.curvature == pytest.approx(np.trace(q.A[1]) / 4, rel=1e-12)
    assert result.steps == 9


def test_the_gradient_is_that_of_the_loss() -> None:
    q, x, h = Quadratics(3, size=4, seed=2), np.ones(4), 1e-5
    profile = Profile(rate=0.1, epochs=1, pace=1.0)

    def loss(at: Any) -> float:
        return q.train(2, Offer(0, 0, at, 1.0, Assignment()), profile).loss_before

    slopes = [(loss(x + h * e) - loss(x - h * e)) / (2 * h) for e in np.eye(4)]
    np.testing.assert_allclose(slopes, q.gradient(2, x), rtol=1e-6)
