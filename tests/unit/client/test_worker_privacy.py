"""A worker with privacy: noised parameters and counts leave it, and nothing else that tells of its data."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedecado.cli.worker import make_guard
from fedecado.client.privacy import Account, Guard, Noise
from fedecado.client.task import Context, Task
from fedecado.client.trainer import Habits, Trainer
from fedecado.client.window import Plan
from fedecado.client.work import Failed, Trained, Training
from fedecado.common.errors import ConfigError, TaskError
from fedecado.common.sections import PrivacySection
from fedecado.common.settings import Settings, load
from fedecado.v1.session_pb2 import Assign


class PrivacyAlone(Settings):
    privacy: PrivacySection = PrivacySection()


def work(**fields: Any) -> Training:
    return Training(Assign(task_id=1, weight=1.0, **fields), np.ones(2, "float32"), None)


def trainer(loss: Any = None, multiplier: float = 1.0) -> Trainer:
    model = nn.Linear(2, 1, bias=False)
    task = Task(model, (torch.ones(8, 2),), loss or (lambda m, batch: m(batch[0]).square().mean()))
    guard = Guard(Noise(0.5, multiplier), Account(1e-5))
    return Trainer(task, Context(0, 1, 0), torch.device("cpu"), Habits(Plan(0.1, batch_size=4)), guard)


def test_losses_and_curvature_stay_at_home() -> None:
    made, seen = trainer(), []
    assert made.profile.curvature is None
    outcome = made.run(work(refresh_curvature=True), lambda done, total, loss: seen.append(loss))
    assert isinstance(outcome, Trained)
    assert (outcome.loss_before, outcome.loss_after, outcome.curvature) == (None, None, None)
    assert set(seen) == {None}


def test_equal_tasks_are_released_with_other_noise_each_time() -> None:
    made = trainer()
    first, second = (made.run(work(), lambda *_: None) for _ in range(2))
    assert isinstance(first, Trained) and isinstance(second, Trained)
    assert not np.array_equal(first.state, second.state)


def test_the_clip_bounds_what_is_sent() -> None:
    outcome = trainer(multiplier=1e-9).run(work(), lambda *_: None)
    assert isinstance(outcome, Trained)
    assert np.linalg.norm(outcome.state - 1) == pytest.approx(0.5, rel=1e-4)


def test_what_the_centre_adds_itself_is_not_clipped() -> None:
    """The rest of a drift says nothing of the data, and is added to what was clipped and given noise."""
    drift = np.array([1e-6, 0], np.float32)
    order = Training(Assign(task_id=1, weight=1.0, drift_after=1e7), np.ones(2, "float32"), drift)
    made = trainer(multiplier=1e-9)
    outcome, without = made.run(order, lambda *_: None), made.run(work(), lambda *_: None)
    assert isinstance(outcome, Trained) and isinstance(without, Trained)
    np.testing.assert_allclose(outcome.state - without.state, [0.2 * 1e7 * 1e-6, 0], atol=1e-4)


def test_what_user_code_says_when_it_fails_stays_in_the_workers_log(caplog: Any) -> None:
    def fail(model: nn.Module, batch: Any) -> torch.Tensor:
        raise ValueError("patient 17 has no scan")

    with pytest.raises(TaskError) as raised:
        trainer(fail).run(work(), lambda *_: None)
    assert "patient" not in str(Failed.of(raised.value))
    assert "patient 17" in caplog.text


def test_clip_and_noise_go_together() -> None:
    with pytest.raises(ConfigError, match="noise_multiplier is missing"):
        load(PrivacyAlone, flags={"privacy.clip": "1.0"}, env={})
    assert make_guard(PrivacySection()) is None
    assert make_guard(PrivacySection(clip=1.0, noise_multiplier=2.0)) is not None
