"""The user's task as a worker runs it: hints, curvature, and what the command makes of settings."""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedecado.cli import worker as command
from fedecado.cli.main import main
from fedecado.client.task import Context, Task
from fedecado.client.trainer import Habits, Trainer
from fedecado.client.window import Cancelled, Plan
from fedecado.client.work import Outcome, Trained, Training
from fedecado.common.errors import ConfigError, TaskError
from fedecado.common.sections import WorkerSection
from fedecado.common.settings import load
from fedecado.v1.session_pb2 import Assign, Hints

CPU = torch.device("cpu")


def quadratic(model: nn.Module, batch: Any) -> torch.Tensor:
    """Curvature 3 in every direction, whatever the batch."""
    [x] = model.parameters()
    return 1.5 * x.square().sum()


def make(**habits: Any) -> Trainer:
    model = nn.Linear(2, 1, bias=False)
    task = Task(model, (torch.zeros(12, 2),), quadratic)
    return Trainer(task, Context(0, 1, 0), CPU, Habits(Plan(0.1, batch_size=4), **habits))


def ignore(done: int, total: int, loss: float | None) -> None:
    pass


def train(trainer: Trainer, task: int = 1, **fields: Any) -> Trained:
    outcome: Outcome = trainer.run(work(task, **fields), ignore)
    assert isinstance(outcome, Trained)
    return outcome


def work(task: int = 1, **fields: Any) -> Training:
    return Training(Assign(task_id=task, weight=2.0, **fields), np.ones(2, "float32"), None)


def test_the_profile_tells_layout_samples_device_and_curvature() -> None:
    profile = make().profile
    assert (profile.layout.size, profile.samples, profile.device) == (2, 12, "cpu")
    assert profile.curvature == pytest.approx(3)
    assert profile.initial.shape == (2,)


def test_a_window_takes_weight_pull_and_drift_from_the_assignment() -> None:
    still = Training(Assign(task_id=1, weight=2.0), np.ones(2, "float32"), np.full(2, 3.0, "float32"))
    outcome = make().run(still, ignore)
    assert isinstance(outcome, Trained)
    np.testing.assert_allclose(outcome.state, 1.0, rtol=1e-6)  # the drift balances the gradient
    assert (outcome.weight, outcome.steps, outcome.samples_seen) == (2.0, 3, 12)
    assert outcome.window == pytest.approx(0.15)
    pulled, free = train(make(), pull=10.0).state, train(make()).state
    assert (pulled > free).all()


def test_the_rest_of_the_drift_is_added_to_what_is_sent() -> None:
    header = Assign(task_id=1, weight=2.0, drift_after=0.5)
    outcome = make().run(Training(header, np.ones(2, "float32"), np.full(2, 3.0, "float32")), ignore)
    assert isinstance(outcome, Trained)
    np.testing.assert_allclose(outcome.state, 1.0 + 0.5 * 3 * 0.1 * 3.0, rtol=1e-6)
    header.drift_after = math.nan
    with pytest.raises(ConfigError, match="afterwards"):
        make().run(Training(header, np.ones(2, "float32"), np.full(2, 3.0, "float32")), ignore)


def test_hints_apply_only_to_what_the_user_left_open() -> None:
    hints = Hints(rate=0.2, epochs=2, batch_size=12)
    assert train(make(), hints=hints).window == pytest.approx(0.2 * 2 / 2.0)
    assert train(make(open_to=["epochs"]), hints=hints).window == pytest.approx(0.1 * 6 / 2.0)
    assert train(make(open_to=[]), hints=hints).steps == 3
    assert train(make(), hints=Hints(epochs=2)).steps == 6


def test_a_senseless_hint_fails_the_task() -> None:
    with pytest.raises(ConfigError, match="rate"):
        train(make(), hints=Hints(rate=-1))


def test_the_curvature_is_measured_anew_when_asked() -> None:
    trainer = make()
    assert train(trainer).curvature is None
    assert train(trainer, refresh_curvature=True).curvature == pytest.approx(3)


def test_the_curvature_is_measured_anew_every_so_many_trainings() -> None:
    trainer = make(sensitivity_every=2)
    measured = [train(trainer, task).curvature is not None for task in range(1, 7)]
    assert measured == [False, False, True, False, True, False]


def test_progress_counts_every_step_and_a_stopped_work_ends_at_the_next() -> None:
    order, seen = work(hints=Hints(epochs=20)), []

    def progress(done: int, total: int, loss: float | None) -> None:
        seen.append((done, total, loss is not None))
        if done == 40:
            order.stop()

    with pytest.raises(Cancelled):
        make().run(order, progress)
    assert seen == [(k, 60, k >= 32) for k in range(1, 41)]


def test_an_evaluator_needs_an_evaluate_function() -> None:
    task = Task(nn.Linear(2, 1), (torch.zeros(1, 2),), quadratic)
    with pytest.raises(TaskError, match="evaluate"):
        Trainer(task, Context(0, 1, 0, "evaluator"), CPU, Habits(Plan(0.1)))


def test_the_command_makes_a_trainer_of_its_settings() -> None:
    flags = {"worker.index": "3", "worker.clients": "5", "worker.threads": "1", "training.rate": "0.5"}
    loaded = load(command.WorkerSettings, flags=flags, env={"FEDECADO_TRAINING__EPOCHS": "2"})
    trainer = command.make_trainer(loaded)
    state = np.zeros(trainer.profile.layout.size, "float32")
    order = Assign(task_id=1, weight=1.0, hints=Hints(rate=0.001, epochs=9, batch_size=10**6))
    outcome = trainer.run(Training(order, state, None), ignore)
    assert isinstance(outcome, Trained)
    assert (outcome.steps, outcome.window) == (2, 1.0)  # own rate and epochs, hinted batch size


def test_a_setting_given_its_default_value_is_given_all_the_same() -> None:
    loaded = load(command.WorkerSettings, flags={"training.epochs": "1"}, env={})
    trainer = command.make_trainer(loaded)
    state = np.zeros(trainer.profile.layout.size, "float32")
    order = Assign(task_id=1, weight=1.0, hints=Hints(epochs=2, batch_size=10**6))
    outcome = trainer.run(Training(order, state, None), ignore)
    assert isinstance(outcome, Trained)
    assert outcome.steps == 1


def test_without_torch_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "torch" or name.startswith("fedecado.client.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_NoTorch(), *sys.meta_path])
    with pytest.raises(ConfigError, match=r"needs torch; install fedecado\[client\]"):
        command.make_trainer(load(command.WorkerSettings, env={}))


class _NoTorch:
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--index", "1"], "set clients to 2 or more"),
        (["--coordinator", "localhost"], "HOST:PORT"),
        (["--coordinator", "http://localhost:50051"], "HOST:PORT"),
        (["--task", "quadratics"], "fedecado simulate"),
        (["--clients", "0"], "--worker-clients"),
    ],
)
def test_wrong_settings_are_reported_before_anything_runs(
    argv: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["worker", *argv]) == 2
    assert message in capsys.readouterr().err


def test_workers_of_one_host_have_different_names() -> None:
    sections = [
        WorkerSection(index=0),
        WorkerSection(index=1, clients=2),
        WorkerSection(role="evaluator"),
    ]
    names = {command._default_id(section) for section in sections}
    assert len(names) == 3
