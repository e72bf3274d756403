"""A user's task as a worker runs it: windows, curvature and scores, on one device."""

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, final

import torch

from fedecado.client.device import pick_device
from fedecado.client.evaluation import scores
from fedecado.client.flat import FlatModel
from fedecado.client.privacy import Guard
from fedecado.client.sensitivity import mean_curvature
from fedecado.client.task import Context, Task
from fedecado.client.window import Assignment, Plan, run_window
from fedecado.client.work import Measured, Measuring, Outcome, Profile, Progress, Trained, Training, Work
from fedecado.common.errors import TaskError
from fedecado.v1.session_pb2 import Hints

logger = logging.getLogger(__name__)

HINTS: Final = ("rate", "epochs", "batch_size")
"""Settings of a plan that a coordinator may suggest."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How this worker trains. `open_to` names what the user left to the coordinator's hints."""

    plan: Plan
    open_to: Collection[str] = HINTS
    probes: int = 4
    sensitivity_every: int = 0


@final
class Trainer:
    """Does what a coordinator asks, with the user's model and data. Used from one thread."""

    def __init__(
        self,
        task: Task,
        context: Context,
        device: torch.device,
        habits: Habits,
        guard: Guard | None = None,
    ) -> None:
        if context.role == "evaluator" and task.evaluate is None:
            raise TaskError("the task has no evaluate function; an evaluator needs one, see Task.evaluate")
        self._task, self._habits, self._guard = task, habits, guard
        self._flat = FlatModel(task.model, device)
        self._trainings = 0
        self._profile = Profile(
            layout=self._flat.layout,
            initial=self._flat.state(),
            samples=task.samples,
            device=_describe(device),
            # Like a loss, it tells of the data, and there is no noise on it.
            curvature=self._first_curvature() if context.role == "trainer" and guard is None else None,
        )

    @property
    def profile(self) -> Profile:
        return self._profile

    def run(self, work: Work, progress: Progress) -> Outcome:
        if isinstance(work, Measuring):
            return self._measure(work)
        train = self._train if self._guard is None else self._train_privately
        trained = train(work, progress)
        _assigned(work).settle(trained.state, trained.window)
        return trained

    def _train_privately(self, work: Training, progress: Progress) -> Trained:
        """Only noised parameters and the steps taken leave this; errors of user code may quote data."""
        guard = self._guard
        assert guard is not None  # noqa: S101 - the caller looked
        try:
            trained = self._train(work, lambda done, total, _: progress(done, total, None))
        except Exception:
            if not work.stopped():
                logger.exception("task %d failed; the coordinator is not told how", work.header.task_id)
            raise TaskError("training failed; privacy is on, so only this worker's log says how") from None
        parameters = self._flat.layout.parameters
        return replace(
            trained,
            state=guard.release(work.state, trained.state, parameters),
            loss_before=None,
            loss_after=None,
            curvature=None,
        )

    def _train(self, work: Training, progress: Progress) -> Trained:
        began = time.perf_counter()
        given = work.header
        every = self._habits.sensitivity_every
        due = every > 0 and self._trainings > 0 and self._trainings % every == 0
        curvature = None
        if (given.refresh_curvature or due) and self._guard is None:
            self._flat.load(work.state)
            curvature = self._curvature(given.task_id)
        result = run_window(
            self._task,
            self._flat,
            _assigned(work),
            self._plan(given.hints),
            round_seed=given.task_id,
            cancelled=work.stopped,
            progress=progress,
        )
        self._trainings += 1
        return Trained(
            state=result.state,
            window=result.time,
            weight=given.weight,
            steps=result.steps,
            samples_seen=result.samples_seen,
            loss_before=result.loss_before,
            loss_after=result.loss_after,
            curvature=curvature,
            seconds=time.perf_counter() - began,
        )

    def _measure(self, work: Measuring) -> Measured:
        began = time.perf_counter()
        self._flat.load(work.state)
        metrics = scores(self._task, self._flat)
        return Measured(metrics, self._task.samples, time.perf_counter() - began)

    def _plan(self, hints: Hints) -> Plan:
        given = {name: getattr(hints, name) for name in HINTS if hints.HasField(name)}
        chosen = {name: value for name, value in given.items() if name in self._habits.open_to}
        return replace(self._habits.plan, **chosen) if chosen else self._habits.plan

    def _curvature(self, seed: int) -> float:
        seed += self._habits.plan.seed
        return mean_curvature(self._task, self._flat, probes=self._habits.probes, seed=seed)

    def _first_curvature(self) -> float | None:
        """None where it cannot be measured: training may work all the same, and else it says why not."""
        try:
            return self._curvature(0)
        except TaskError as error:
            logger.warning("enrolling without a curvature: %s", error)
            return None


def make_device(name: str, local_index: int | None, threads: int | None) -> torch.device:
    """The device, with torch's thread count set for the calling thread, which is to train."""
    if threads is not None:
        torch.set_num_threads(threads)
    return pick_device(name, local_index)


def _assigned(work: Training) -> Assignment:
    given = work.header
    return Assignment(work.state, work.drift, given.pull, given.weight, given.drift_after)


def _describe(device: torch.device) -> str:
    return f"{device} {torch.cuda.get_device_name(device)}" if device.type == "cuda" else str(device)
