"""A worker and a coordinator of the test's own, over real gRPC."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scripted_coordinator import (
    BIG,
    EVALUATOR,
    LIMIT,
    TIMEOUTS,
    TRAINER,
    Coordinator,
    Puppet,
    Signs,
    Station,
    least_squares,
    quick,
)
from torch import nn

from fedecado.client.connection import Connection
from fedecado.client.effects import Leave, Send
from fedecado.client.pace import Pace
from fedecado.client.session import Session
from fedecado.client.task import Task
from fedecado.client.trainer import Habits, Trainer
from fedecado.client.window import Plan
from fedecado.client.work import Identity, Learner
from fedecado.common.enclosed import enclose
from fedecado.common.errors import TaskError
from fedecado.common.timeouts import Timeouts
from fedecado.common.wire import BulkChunk, encode
from fedecado.v1.session_pb2 import (
    Acknowledge,
    Assign,
    Cancel,
    CoordinatorBye,
    Evaluate,
    HeldTask,
    Refused,
    RequestInitialState,
    WorkerBye,
    WorkerMessage,
)


@pytest.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    coordinator = await Coordinator().start()
    yield coordinator
    await coordinator.kill()


@pytest.fixture
async def station(coordinator: Coordinator) -> AsyncIterator[Station]:
    station = Station(coordinator)
    yield station
    await station.background.close(LIMIT)
    assert station.background.ended


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


async def test_an_upload_that_broke_off_is_sent_again_and_not_trained_again(station: Station) -> None:
    puppet = quick(BIG)
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(lambda: puppet))
        line = await station.coordinator.line()
        await line.welcome()
        await line.assign(1, puppet.profile.initial)
        await line.expect("update")
        assert isinstance(await line.message(), BulkChunk)
        line.over.set()
        line = await station.coordinator.line()
        hello = await line.welcome()
        assert [(t.task_id, t.state) for t in hello.held_tasks] == [(1, HeldTask.STATE_FINISHED)]
        assert (hello.connection, hello.run_id) == (2, "r")
        _, state = await line.update()
        assert state.shape == (BIG,)
        assert (state == 1).all()
        await line.accept(1)
        await line.finish()
    assert worker.result().code == 0
    assert puppet.runs == [1]


async def test_training_goes_on_while_the_coordinator_is_restarted(station: Station) -> None:
    puppet = Puppet()
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(lambda: puppet))
        line = await station.coordinator.line()
        await line.welcome()
        await line.assign(1, puppet.profile.initial)
        await station.coordinator.kill()
        puppet.go.release()
        await station.coordinator.start()
        line = await station.coordinator.line()
        hello = await line.welcome()
        assert [task.task_id for task in hello.held_tasks] == [1]
        await line.update()
        await line.accept(1)
        await line.finish(CoordinatorBye.REASON_DRAINED)
    assert worker.result().code == 0
    assert puppet.runs == [1]


async def test_a_coordinator_that_shuts_down_is_awaited(station: Station) -> None:
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(quick))
        line = await station.coordinator.line()
        await line.welcome()
        await line.finish(CoordinatorBye.REASON_SHUTTING_DOWN)
        line = await station.coordinator.line()
        await line.welcome()
        await line.finish(CoordinatorBye.REASON_REPLACED)
    assert worker.result().code == 1
    assert "'w1'" in worker.result().reason


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
        line = await station.coordinator.line()
        await line.welcome()
        await line.assign(1, endless.profile.initial)
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


async def test_a_refused_worker_retries_only_if_it_may(station: Station) -> None:
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(quick))
        line = await station.coordinator.line()
        await line.expect("hello")
        await line.send(Refused(reason=Refused.REASON_FULL, message="no room", retry=True))
        line.over.set()
        line = await station.coordinator.line()
        await line.expect("hello")
        await line.send(Refused(reason=Refused.REASON_LAYOUT, message="another model"))
        line.over.set()
    assert worker.result() == Leave(1, "the coordinator refused this worker: another model")


@pytest.fixture
def signs() -> Any:
    handler, logger = Signs(), logging.getLogger("fedecado.client.running")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


async def test_a_coordinator_that_is_away_at_first_is_awaited(station: Station, signs: Signs) -> None:
    await station.coordinator.kill()
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(quick))
        for _ in range(3):
            assert "Connection refused" in await signs.wait("not connected")
        await station.coordinator.start()
        line = await station.coordinator.line()
        assert (await line.welcome()).connection >= 4
        await line.finish()
    assert worker.result().code == 0


async def test_a_coordinator_that_does_not_answer_is_tried_again(station: Station, signs: Signs) -> None:
    station.timeouts = Timeouts(0.3)
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(quick))
        silent = await station.coordinator.line()
        assert "an answer to Hello" in await signs.wait("not connected")
        line = await station.coordinator.line()
        await line.welcome()
        await line.finish()
        silent.over.set()
    assert worker.result().code == 0


@contextlib.contextmanager
def tapped(port: int, cut: threading.Event) -> Iterator[int]:
    """A port that leads to `port`; what connects before `cut` goes dead then, without being closed."""
    ends: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def begin(target: Callable[..., None], *arguments: Any) -> None:
        threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        threads[-1].start()

    def pump(source: socket.socket, sink: socket.socket, dead: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not dead.is_set():
                    sink.sendall(data)

    def accept(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, there = listener.accept()[0], socket.create_connection(("127.0.0.1", port))
                ends.extend((here, there))
                dead = threading.Event() if cut.is_set() else cut
                begin(pump, here, there, dead)
                begin(pump, there, here, dead)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        begin(accept, listener)
        yield listener.getsockname()[1]
        for end in (listener, *ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(LIMIT)
        for end in ends:
            end.close()


async def test_a_line_that_went_dead_is_noticed_and_replaced(station: Station, signs: Signs) -> None:
    """The connection is open, but nothing passes any more: only keepalive can tell."""
    cut, station.timeouts = threading.Event(), Timeouts(0.9)
    with tapped(station.coordinator.port, cut) as station.coordinator.port:
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(station.serve(quick))
            line = await station.coordinator.line()
            await line.welcome()
            await line.send(RequestInitialState())
            await line.expect("initial_state")
            cut.set()
            await signs.wait("disconnected")
            line.over.set()
            line = await station.coordinator.line()
            await line.welcome()
            await line.finish()
        assert worker.result().code == 0


async def test_bytes_that_are_no_message_end_the_connection_only(station: Station, signs: Signs) -> None:
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(quick))
        line = await station.coordinator.line()
        await line._context.write(b"\xff\xff\xff")
        assert "no CoordinatorMessage" in await signs.wait("not connected")
        line.over.set()
        line = await station.coordinator.line()
        await line.welcome()
        await line.finish()
    assert worker.result().code == 0


async def test_stop_while_training_says_goodbye_and_leaves_with_success(station: Station) -> None:
    endless = least_squares(TRAINER, epochs=10**6)
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(lambda: endless))
        line = await station.coordinator.line()
        await line.welcome()
        await line.assign(1, endless.profile.initial)
        await line.progress()
        station.stopping.set()
        bye = await line.expect("bye")
        assert bye.reason == WorkerBye.REASON_STOPPED
        assert await line.message() is None
        line.over.set()
    assert worker.result() == Leave(0, "stopped")
    assert station.background.ended


async def test_stop_lets_a_running_upload_end_first(station: Station) -> None:
    puppet = quick(BIG)
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(lambda: puppet))
        line = await station.coordinator.line()
        await line.welcome()
        await line.assign(1, puppet.profile.initial)
        update = await line.expect("update")
        station.stopping.set()
        assert len(await line.vector(update.state_bytes)) == BIG
        await line.expect("bye")
        line.over.set()
    assert worker.result().code == 0


async def test_stop_does_not_wait_for_a_coordinator_that_never_welcomed(station: Station) -> None:
    station.timeouts = Timeouts(3600)
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(quick))
        line = await station.coordinator.line()
        station.stopping.set()
        assert (await asyncio.wait_for(worker, LIMIT)).code == 0
        line.over.set()


async def test_stop_ends_the_pause_before_a_reconnect(station: Station, signs: Signs) -> None:
    await station.coordinator.kill()
    station.timeouts = Timeouts(3600)
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(quick))
        await signs.wait("not connected")
        station.stopping.set()
    assert worker.result().code == 0


async def test_a_task_that_cannot_be_made_is_an_error_at_once(station: Station) -> None:
    def make() -> Learner:
        raise TaskError("no such data")

    with pytest.raises(TaskError, match="no such data"):
        await station.serve(make)


async def test_stop_does_not_wait_for_a_task_that_is_being_made(coordinator: Coordinator) -> None:
    station, release = Station(coordinator), threading.Event()

    def make() -> Learner:
        release.wait(LIMIT)
        return quick()

    station.stopping.set()
    assert await station.serve(make) == Leave(0, "stopped")
    assert not station.background.ended
    release.set()
    await station.background.close(LIMIT)


STUCK = """
    import sys, time, numpy as np
    from fedecado.client.connection import Address
    from fedecado.client.running import run_process
    from fedecado.client.work import Identity, Profile
    from fedecado.common.layout import Layout
    from fedecado.common.logs import setup_logging
    from fedecado.common.timeouts import Timeouts

    class Stuck:
        profile = Profile(Layout.flat(3), np.zeros(3, "float32"), samples=1)
        def run(self, work, progress):
            sys.stderr.write("stuck\\n")
            while True:
                time.sleep(60)

    setup_logging()
    address = Address(sys.argv[1], Timeouts(float(sys.argv[2])))
    sys.exit(run_process(address, Identity("w1", "trainer", 7), Stuck))
"""


@contextlib.asynccontextmanager
async def process(*argv: str) -> AsyncIterator[asyncio.subprocess.Process]:
    child = await asyncio.create_subprocess_exec(sys.executable, *argv, stderr=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(2 * LIMIT):
            yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


async def stderr_until(child: asyncio.subprocess.Process, part: bytes) -> None:
    assert child.stderr is not None
    while part not in (line := await child.stderr.readline()):
        assert line, f"ended without {part!r}"


TASK = """
    import torch
    from fedecado.client.task import Task

    def loss(model, batch):
        return model(batch[0]).square().mean()

    def make():
        return Task(torch.nn.Linear(2, 1), (torch.ones(64, 2),), loss)
"""


@pytest.fixture
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny_task.py").write_text(textwrap.dedent(TASK))
    Path("fedecado.toml").write_text("[worker]\nid = 'w1'\nthreads = 1\n[training]\nepochs = 1000000\n")


@pytest.mark.usefixtures("_project")
async def test_sigterm_ends_a_training_process_with_success(coordinator: Coordinator) -> None:
    options = ["--coordinator", f"127.0.0.1:{coordinator.port}", "--task", "tiny_task:make"]
    async with process("-m", "fedecado.cli", "worker", *options) as child:
        line = await coordinator.line()
        await line.welcome()
        await line.assign(1, np.zeros(3, "float32"))
        await line.progress()
        child.send_signal(signal.SIGTERM)
        assert (await line.expect("bye")).reason == WorkerBye.REASON_STOPPED
        line.over.set()
        assert await child.wait() == 0
        assert child.stderr is not None
        shown = (await child.stderr.read()).decode()
        assert "enrolled as w1" in shown
        assert "Traceback" not in shown


async def test_a_signal_ends_the_process_even_if_user_code_is_stuck(coordinator: Coordinator) -> None:
    target = f"127.0.0.1:{coordinator.port}"
    async with process("-c", textwrap.dedent(STUCK), target, "1") as child:
        line = await coordinator.line()
        await line.welcome()
        await line.assign(1, np.zeros(3, "float32"))
        await stderr_until(child, b"stuck")
        child.send_signal(signal.SIGINT)
        assert await child.wait() == 0
        line.over.set()


async def test_the_second_signal_kills_at_once(coordinator: Coordinator) -> None:
    target = f"127.0.0.1:{coordinator.port}"
    async with process("-c", textwrap.dedent(STUCK), target, "3600") as child:
        line = await coordinator.line()
        await line.welcome()
        await line.assign(1, np.zeros(3, "float32"))
        await stderr_until(child, b"stuck")
        child.send_signal(signal.SIGINT)
        await stderr_until(child, b"a second signal")
        child.send_signal(signal.SIGINT)
        assert await child.wait() == -signal.SIGINT
        line.over.set()
