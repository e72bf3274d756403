"""The curvature estimate agrees with Hessians that are known exactly."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fedecado.client.flat import FlatModel
from fedecado.client.sensitivity import mean_curvature
from fedecado.client.task import Task
from fedecado.common.errors import ConfigError, TaskError

CPU = torch.device("cpu")


def least_squares(model: nn.Module, batch: Any) -> Tensor:
    x, y = batch
    residual: Tensor = model(x).squeeze(1) - y
    return residual.square().mean() / 2


class Square(torch.autograd.Function):
    """x^2 with a backward pass that cannot itself be differentiated."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        slope: Tensor = 2 * x * upstream
        return slope


def linear(samples: int = 200, features: int = 6) -> tuple[Task, FlatModel, float]:
    rng = np.random.default_rng(0)
    X, y = (
        rng.normal(size=(samples, features)) @ np.diag(np.arange(1, features + 1)),
        rng.normal(size=samples),
    )
    model = nn.Linear(features, 1, bias=False)
    task = Task(model, (torch.tensor(X), torch.tensor(y)), loss=least_squares)
    return task, FlatModel(model, CPU, torch.float64), float(np.trace(X.T @ X) / samples / features)


def test_linear_least_squares_has_the_trace_of_its_gram_matrix() -> None:
    task, flat, exact = linear()
    assert mean_curvature(task, flat, probes=300) == pytest.approx(exact, rel=0.02)


def test_one_probe_is_exact_for_a_diagonal_hessian() -> None:
    X = torch.diag(torch.arange(1.0, 9.0))
    model = nn.Linear(8, 1, bias=False)
    flat = FlatModel(model, CPU)
    exact = float(X.square().sum() / 8 / 8)
    task = Task(model, (X, torch.zeros(8)), loss=least_squares)
    assert mean_curvature(task, flat, probes=1) == pytest.approx(exact, rel=1e-5)


def test_logistic_regression_agrees_with_its_explicit_hessian() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(60, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (60,), generator=generator)
    model = nn.Linear(4, 3)
    flat = FlatModel(model, CPU, torch.float64)

    def loss(vector: Tensor) -> Tensor:
        return functional.cross_entropy(X @ vector[:12].view(3, 4).T + vector[12:], y)

    hessian = torch.autograd.functional.hessian(loss, flat.values.clone())  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    exact = float(torch.trace(hessian)) / 15
    assert mean_curvature(Task(model, (X, y)), flat, probes=1000) == pytest.approx(exact, rel=0.03)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-2)])
def test_without_a_second_backward_pass_it_uses_differences_of_gradients(
    dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    flat = FlatModel(model, CPU, dtype)
    data = (torch.randn(30, 4, dtype=dtype),)
    once = Task(model, data, loss=lambda m, batch: Square.apply(m(batch[0]).tanh()).mean())  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    twice = Task(model, data, loss=lambda m, batch: m(batch[0]).tanh().square().mean())
    before = flat.state()
    assert mean_curvature(once, flat) == pytest.approx(mean_curvature(twice, flat), rel=tolerance)
    np.testing.assert_array_equal(flat.state(), before)


def test_a_linear_loss_has_no_curvature_and_a_concave_one_is_floored() -> None:
    model = nn.Linear(3, 1)
    flat = FlatModel(model, CPU)
    data = (torch.randn(5, 3),)
    assert mean_curvature(Task(model, data, loss=lambda m, b: m(b[0]).mean()), flat) == 0
    assert mean_curvature(Task(model, data, loss=lambda m, b: -m(b[0]).square().mean()), flat) == 0


def test_parameters_that_the_loss_does_not_use_count_as_flat() -> None:
    model = nn.ModuleList([nn.Linear(1, 1, bias=False), nn.Linear(1, 3)])
    flat = FlatModel(model, CPU)
    task = Task(model, (torch.ones(4, 1),), loss=lambda m, b: m[0](b[0]).square().mean() / 2)  # type: ignore[index]  # a ModuleList
    assert mean_curvature(task, flat) == pytest.approx(1 / 7)


def test_model_gradients_modes_and_random_state_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2))
    task = Task(model, (torch.randn(300, 3), torch.randint(0, 2, (300,))))
    flat = FlatModel(model, CPU)
    flat.grads.fill_(3)
    state, rng = flat.state(), torch.get_rng_state()
    first = mean_curvature(task, flat)
    assert first == mean_curvature(task, flat) != mean_curvature(task, flat, seed=1)
    flat.check()
    np.testing.assert_array_equal(flat.state(), state)
    assert (flat.grads == 3).all()
    assert torch.equal(torch.get_rng_state(), rng)
    assert all(module.training for module in model.modules())


def test_what_cannot_be_estimated_is_an_error() -> None:
    task, flat, _ = linear()
    with pytest.raises(ConfigError, match="probes"):
        mean_curvature(task, flat, probes=0)
    flat.values.fill_(float("nan"))
    cubic = Task(task.model, task.data, loss=lambda m, b: m(b[0]).pow(3).mean())
    with pytest.raises(TaskError, match="nan"):
        mean_curvature(cubic, flat)
    broken = Task(task.model, task.data, loss=lambda m, b: m(b[1]).mean())
    with pytest.raises(TaskError, match="loss function failed"):
        mean_curvature(broken, flat)
    constant = Task(task.model, task.data, loss=lambda m, b: torch.tensor(1.0))
    with pytest.raises(TaskError, match="gradient"):
        mean_curvature(constant, flat)
