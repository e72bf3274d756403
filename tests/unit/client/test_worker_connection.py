"""A worker and a coordinator of the test's own, over real gRPC: tasks, uploads, cancellations."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scripted_coordinator import BIG, EVALUATOR, TIMEOUTS, TRAINER, Puppet, Station, least_squares, quick
from torch import nn

from fedecado.client.connection import Connection
from fedecado.client.effects import Send
from fedecado.client.pace import Pace
from fedecado.client.session import Session
from fedecado.client.task import Task
from fedecado.client.trainer import Habits, Trainer
from fedecado.client.window import Plan
from fedecado.client.work import Identity, Learner
from fedecado.common.enclosed import enclose
from fedecado.common.errors import TaskError
from fedecado.common.wire import encode
from fedecado.v1.session_pb2 import Acknowledge, Assign, Cancel, Evaluate, RequestInitialState, WorkerMessage

pytest_plugins = ["scripted_fixtures"]


async def test_two_rounds_from_the_initial_state_to_the_end_of_the_run(station: Station) -> None:
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(lambda: least_squares(TRAINER)))
        line = await station.coordinator.line()
        hello = await line.welcome()
        assert (hello.worker_id, hello.samples, hello.device) == ("w1", 64, "cpu")
        assert hello.curvature > 0
        await line.send(RequestInitialState())
        header = await line.expect("initial_state")
        state = await line.vector(header.state_bytes)
        await line.accept(0)
        losses = []
        for task in (1, 2):
            await line.assign(task, state, np.zeros(5, "float32"))
            update, state = await line.update()
            assert update.window == pytest.approx(0.8)
            losses += [update.loss_before, update.loss_after]
            await line.accept(task)
        assert losses == sorted(losses, reverse=True)
        assert losses[1] == pytest.approx(losses[2])
        await line.finish()
    assert worker.result().code == 0


@pytest.mark.parametrize("minor", [1, 2])
async def test_a_short_update_is_one_message_where_the_coordinator_takes_that(
    station: Station, minor: int
) -> None:
    puppet, state = quick(), np.arange(3, dtype="float32")
    worker = asyncio.create_task(station.serve(lambda: puppet))
    line = await station.coordinator.line()
    assert (await line.welcome(minor)).protocol.minor >= 2
    header = Assign(task_id=1, weight=1.0, state_bytes=12, drift_bytes=12)
    header.state.CopyFrom(enclose(state))
    header.drift.CopyFrom(enclose(state))
    await line.send(header)
    update = await line.expect("update")
    if minor < 2:
        np.testing.assert_array_equal(await line.vector(update.state_bytes), state + 1)
    assert (update.state == enclose(state + 1)) == (minor >= 2)
    await line.accept(1)
    await line.finish()
    assert (await worker).code == 0


async def test_a_damaged_short_update_is_sent_again(station: Station) -> None:
    worker = asyncio.create_task(station.serve(quick))
    line = await station.coordinator.line()
    await line.welcome(minor=2)
    await line.assign(1, np.zeros(3, "float32"))
    first = await line.expect("update")
    refused = Acknowledge.OUTCOME_REFUSED
    await line.send(Acknowledge(task_id=1, outcome=refused, reason=Acknowledge.REASON_DAMAGED))
    assert await line.expect("update") == first
    await line.accept(1)
    await line.finish()
    assert (await worker).code == 0


async def test_cancel_stops_a_training_and_the_next_task_starts(station: Station) -> None:
    long, short = least_squares(TRAINER, epochs=10**6), Assign(task_id=2, model_version=1, weight=1.0)
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(lambda: long))
        line = await station.coordinator.line()
        await line.welcome()
        state = long.profile.initial
        await line.assign(1, state)
        progress = await line.progress()
        assert (progress.task_id, progress.steps_total) == (1, 4 * 10**6)
        await line.send(Cancel(task_id=1, reason="too slow"))
        short.state_bytes, short.hints.epochs = state.nbytes, 1
        await line.send(short)
        for frame in encode(state):
            await line._context.write(frame)
        update, _ = await line.update()
        assert (update.task_id, update.steps) == (2, 4)
        await line.accept(2)
        await line.finish()
    assert worker.result().code == 0


async def test_a_task_that_is_cancelled_while_it_waits_is_never_begun(station: Station) -> None:
    puppet = Puppet()
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(lambda: puppet))
        line = await station.coordinator.line()
        await line.welcome()
        for task in (1, 2, 3):
            await line.assign(task, puppet.profile.initial)
        await line.send(Cancel(task_id=2))
        await line.send(RequestInitialState())
        await line.expect("initial_state")  # so the cancellation has arrived
        await line.vector(12)
        puppet.go.release(3)
        assert [(await line.update())[0].task_id for _ in range(2)] == [1, 3]
        await line.finish()
    assert worker.result().code == 0
    assert puppet.runs == [1, 3]


async def test_the_end_of_the_run_ends_a_training(station: Station) -> None:
    endless = least_squares(TRAINER, epochs=10**6)
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(lambda: endless))
        line = await station.first_task(endless)
        await line.progress()
        await line.finish()
    assert worker.result().code == 0
    assert station.background.ended


async def test_an_upload_that_nobody_wants_any_more_is_broken_off() -> None:
    session = Session(Identity("w1", "trainer", 7), quick(BIG).profile, Pace.of(TIMEOUTS))
    connection = Connection(session, TIMEOUTS, asyncio.Event(), lambda effects: None)
    wanted = Send(WorkerMessage(), np.zeros(BIG, "float32"))
    assert len(list(connection._messages(wanted))) == 5  # header, three chunks, trailer
    assert list(connection._messages(replace(wanted, task=1))) == []


async def test_an_upload_that_is_broken_off_half_way_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(Identity("w1", "trainer", 7), quick(BIG).profile, Pace.of(TIMEOUTS))
    connection = Connection(session, TIMEOUTS, asyncio.Event(), lambda effects: None)
    asked = iter([True, True, True, False])
    monkeypatch.setattr(Session, "wants", lambda session, send: next(asked))
    _, *chunks, end = connection._messages(Send(WorkerMessage(), np.zeros(BIG, "float32"), task=1))
    assert len(chunks) == 2 and all(isinstance(chunk, bytes) for chunk in chunks)
    assert isinstance(end, WorkerMessage) and end.WhichOneof("content") == "trailer"


async def test_errors_in_user_code_are_reported_and_survived(station: Station) -> None:
    calls = iter([ValueError("wrong column"), SystemExit(3), None, None, None, None, None, None])

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        error = next(calls)
        if error is not None:
            raise error
        return torch.square(model(batch[0])).mean()

    def make() -> Trainer:
        plain = Habits(Plan(0.1, batch_size=64, loss_samples=0))
        return Trainer(Task(nn.Linear(2, 1), (torch.ones(8, 2),), loss), TRAINER, torch.device("cpu"), plain)

    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(make))
        line = await station.coordinator.line()
        hello = await line.welcome()
        assert not hello.HasField("curvature")  # the first error met the estimate at enrolment
        state = np.zeros(3, "float32")
        await line.assign(1, state)
        failed = await line.expect("task_failed")
        assert (failed.task_id, failed.exception_type, failed.message) == (1, "SystemExit", "3")
        assert "in loss" in failed.traceback
        await line.assign(2, state)
        assert (await line.update())[0].task_id == 2
        await line.finish()
    assert worker.result().code == 0


async def test_an_evaluator_answers_with_the_tasks_scores(station: Station) -> None:
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(lambda: least_squares(EVALUATOR), "evaluator"))
        line = await station.coordinator.line()
        hello = await line.welcome()
        assert not hello.HasField("curvature")
        exact = np.array([1.0, -2.0, 0.5, 3.0, 0.0], "float32")
        await line.send(Evaluate(task_id=1, model_version=5, state_bytes=exact.nbytes))
        for frame in encode(exact):
            await line._context.write(frame)
        evaluation = await line.expect("evaluation")
        assert (evaluation.model_version, evaluation.samples) == (5, 64)
        assert evaluation.metrics["loss"] == pytest.approx(0, abs=1e-9)
        await line.accept(1)
        await line.finish()
    assert worker.result().code == 0


async def test_a_task_that_cannot_be_made_is_an_error_at_once(station: Station) -> None:
    def make() -> Learner:
        raise TaskError("no such data")

    with pytest.raises(TaskError, match="no such data"):
        await station.serve(make)
