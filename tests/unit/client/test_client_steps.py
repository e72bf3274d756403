"""Adaptive steps: accurate to the tolerance, stable, and the same whatever the first guess."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedecado.client.flat import FlatModel
from fedecado.client.steps import LARGEST, SMALLEST, STABLE, Adaptive, Probe, Scheduled, next_eta
from fedecado.client.task import Task
from fedecado.client.window import Assignment, Plan, run_window
from fedecado.common.errors import ConfigError

POSITIVE = st.floats(1e-3, 1e3)


def quadratic(curvature: float, slope: float) -> Probe:
    """g(x) - g(x - eta g) = eta curvature g, exactly."""
    return lambda eta: (eta * curvature * slope, slope)


@given(curvature=POSITIVE, slope=st.floats(1e-3, 10), delta=st.floats(1e-6, 0.1), guess=st.floats(1e-3, 1))
def test_on_a_quadratic_the_step_meets_the_tolerance_or_the_bound_of_stability(
    curvature: float, slope: float, delta: float, guess: float
) -> None:
    steps, probe = Adaptive(delta, guess), quadratic(curvature, slope)
    for _ in range(100):  # from any guess within the first looks
        eta = steps.next(probe)
    error = eta**2 / 2 * curvature * slope
    assert error <= delta * (1 + 1e-6) or eta == SMALLEST
    assert eta * curvature <= STABLE * (1 + 1e-6)
    tight = max(error / delta, eta * curvature / STABLE)
    assert tight == pytest.approx(1, rel=1e-6) or eta in (SMALLEST, LARGEST)


@given(eta=POSITIVE, change=st.floats(0, 1e6), size=st.floats(0, 1e6), delta=st.floats(1e-8, 1))
def test_no_look_changes_a_step_too_far(eta: float, change: float, size: float, delta: float) -> None:
    assert eta / 5 * (1 - 1e-12) <= next_eta(eta, change, size, delta) <= eta * 5 * (1 + 1e-12)


@pytest.mark.parametrize("broken", [(math.nan, 1.0), (math.inf, 1.0), (1.0, math.inf)])
def test_a_trial_that_leaves_floating_point_range_makes_the_step_shorter(broken: tuple[float, float]) -> None:
    assert next_eta(1.0, *broken, delta=0.1) < 1


def test_a_schedule_asks_for_no_gradient() -> None:
    def probe(eta: float) -> tuple[float, float]:
        raise AssertionError(f"probed at {eta}")

    steps = Scheduled([0.3, 0.2])
    assert [steps.next(probe), steps.next(probe)] == [0.3, 0.2]


def regression(scale: float = 1.0) -> tuple[Task, FlatModel]:
    draw = torch.Generator().manual_seed(0)
    inputs = scale * torch.randn(64, 5, generator=draw)
    model = nn.Linear(5, 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)

    def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    task = Task(model, (inputs, inputs.sum(1, keepdim=True)), loss=loss)
    return task, FlatModel(task.model, torch.device("cpu"))


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_one_tolerance_descends_on_losses_whose_fixed_rates_would_differ_by_orders(scale: float) -> None:
    """At scale 30 a rate of 0.05 explodes; nobody has to know."""
    task, flat = regression(scale)
    plan = Plan(rate=0.05, epochs=10, batch_size=8, tolerance=0.01)
    result = run_window(task, flat, Assignment(flat.state()), plan, round_seed=0)
    assert result.loss_before is not None and result.loss_after is not None
    assert result.loss_after < 0.5 * result.loss_before
    assert result.steps == 80
    assert result.time > 0


def test_the_guess_hardly_matters_and_a_window_s_time_is_the_sum_of_its_steps() -> None:
    task, flat = regression()
    start = flat.state()
    times = [
        run_window(
            task,
            flat,
            Assignment(start, weight=2.0),
            Plan(rate=rate, epochs=4, batch_size=8, tolerance=1e-3),
            round_seed=1,
        ).time
        for rate in (0.01, 0.05, 0.25)
    ]
    assert max(times) < 1.2 * min(times)


def test_a_tighter_tolerance_takes_shorter_steps() -> None:
    task, flat = regression()
    start = flat.state()

    def time(tolerance: float) -> float:
        plan = Plan(rate=0.05, epochs=2, batch_size=8, tolerance=tolerance)
        return run_window(task, flat, Assignment(start), plan, round_seed=1).time

    times = [time(tolerance) for tolerance in (1e-2, 1e-4, 1e-6)]
    assert times == sorted(times, reverse=True)
    assert times[1] / times[2] == pytest.approx(10, rel=0.5)  # the root of a hundred


def test_probing_leaves_the_window_reproducible() -> None:
    task, flat = regression()
    start, plan = flat.state(), Plan(rate=0.05, epochs=2, batch_size=8, tolerance=1e-3)
    first, again = (run_window(task, flat, Assignment(start), plan, round_seed=1) for _ in range(2))
    np.testing.assert_array_equal(first.state, again.state)
    assert first.time == again.time


def test_a_tolerance_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="tolerance"):
        Plan(rate=0.1, tolerance=0.0)
