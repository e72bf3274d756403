"""Scores are taken in eval mode, without gradients, and are finite numbers."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from fedecado.client.evaluation import mean_loss, scores
from fedecado.client.flat import FlatModel
from fedecado.client.task import Task
from fedecado.common.errors import TaskError


def make(**options: Any) -> tuple[Task, FlatModel]:
    model = nn.Sequential(nn.Linear(1, 1), nn.Dropout())
    data = (torch.arange(100.0).unsqueeze(1),)
    task = Task(model, data, **{"loss": lambda m, batch: batch[0].mean() + 0 * m(batch[0]).mean(), **options})
    return task, FlatModel(model, torch.device("cpu"))


def test_the_mean_loss_does_not_depend_on_the_batch_size() -> None:
    task, flat = make()
    for batch_size in (1, 7, 99, 100, 1000):
        assert mean_loss(task, flat, samples=1000, batch_size=batch_size) == pytest.approx(49.5)


def test_a_bound_on_the_samples_takes_them_evenly_spaced() -> None:
    task, flat = make()
    assert mean_loss(task, flat, samples=4) == pytest.approx((0 + 25 + 50 + 75) / 4)
    assert mean_loss(task, flat, samples=1) == 0


def test_the_users_scores_are_taken_in_eval_mode_without_gradients() -> None:
    def evaluate(model: nn.Module) -> dict[str, Any]:
        assert not model.training
        assert not torch.is_grad_enabled()
        return {"a": 1, "b": torch.tensor(0.5)}

    task, flat = make(evaluate=evaluate)
    assert scores(task, flat) == {"a": 1.0, "b": 0.5}
    assert flat.model.training
    assert scores(replace(task, evaluate=None), flat) == {}


@pytest.mark.parametrize(
    ("returned", "message"),
    [(3, "int"), ({"a": "x"}, "ValueError"), ({"a": math.nan}, "a = nan")],
)
def test_what_is_wrong_with_the_scores_is_said(returned: Any, message: str) -> None:
    task, flat = make(evaluate=lambda model: returned)
    with pytest.raises(TaskError, match=message):
        scores(task, flat)
