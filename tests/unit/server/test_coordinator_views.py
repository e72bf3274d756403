"""What operators are shown of a run, at every stage of it."""

import asyncio
import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedecado.common.layout import Layout
from fedecado.server.algorithms import make_algorithm
from fedecado.server.coordinator.about import About
from fedecado.server.coordinator.footing import Footing
from fedecado.server.coordinator.inbox import Received
from fedecado.server.coordinator.journal import ClosedRound, Measurement
from fedecado.server.coordinator.models import ModelFiles
from fedecado.server.coordinator.run import Run
from fedecado.server.coordinator.views import client_of, round_of, status_of
from fedecado.server.rounds import Engine, Enrolled, Paused, Rules, Stopped
from fedecado.v1 import admin_pb2 as pb
from fedecado.v1 import session_pb2

ABOUT = About("demo", "fedecado", "1.2.3")
LAYOUT = Layout.flat(10)


class Ears:
    """A session that keeps what it is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.receiving = False
        self.footing = Footing()

    def send(self, content: Any) -> None:
        self.sent.append(content)

    def send_parcel(self, parcel: Any) -> None:
        self.sent.extend(parcel)


@pytest.fixture
async def run(tmp_path: Path) -> Run:
    made = Run(Engine(Rules(min_clients=1)), make_algorithm("fedecado"), ModelFiles(tmp_path, "demo-1"))
    for name, samples in (("a", 10), ("b", 30)):
        hello = session_pb2.Hello(worker_id=name, role=session_pb2.ROLE_TRAINER, samples=samples)
        made.members.admit(hello, Ears(), "ipv4:1")  # type: ignore[arg-type]  # as much as is needed
    return made


async def test_a_run_without_a_model_waits(run: Run) -> None:
    status = status_of(run, ABOUT)
    assert (status.run_name, status.software_version, status.phase) == ("demo", "1.2.3", pb.PHASE_WAITING)
    assert "initial model" in status.waiting_for
    assert not status.HasField("open_round") and not status.HasField("latest")
    client = client_of(run, run.members.by_id["a"], tracebacks=True)
    assert (client.state, client.weight) == (pb.Client.STATE_IDLE, 0.0)


async def test_a_run_shows_its_open_round_and_who_works(run: Run) -> None:
    await run.start_from(LAYOUT, np.zeros(10, np.float32))
    status = status_of(run, ABOUT)
    assert (status.phase, status.parameters) == (pb.PHASE_RUNNING, 10)
    assert (status.open_round.number, status.open_round.updates) == (1, 0)
    assert (status.clients.enrolled, status.clients.connected) == (2, 2)
    member = run.members.by_id["a"]
    member.progress = session_pb2.Progress(task_id=1, steps_done=3, steps_total=9, loss=0.5)
    client = client_of(run, member, tracebacks=False)
    assert client.state == pb.Client.STATE_WORKING
    assert (client.task.steps_done, client.task.steps_total, client.task.loss) == (3, 9, 0.5)
    assert client_of(run, run.members.by_id["b"], tracebacks=False).weight == 1.5
    await run.beside.settle()


async def test_progress_of_an_earlier_task_is_not_shown_for_the_present_one(run: Run) -> None:
    await run.start_from(LAYOUT, np.zeros(10, np.float32))
    member = run.members.by_id["a"]
    member.progress = session_pb2.Progress(task_id=99, steps_done=3, steps_total=9)
    assert client_of(run, member, tracebacks=False).task.steps_total == 0
    await run.beside.settle()


async def test_phases_follow_the_engine(run: Run) -> None:
    await run.start_from(LAYOUT, np.zeros(10, np.float32))
    run.handle(Paused())
    assert status_of(run, ABOUT).phase == pb.PHASE_PAUSED
    run.engine.handle(Stopped("enough"))
    assert status_of(run, ABOUT).phase == pb.PHASE_STOPPING
    run.finished.set()
    assert status_of(run, ABOUT).phase == pb.PHASE_FINISHED
    await run.beside.settle()


async def test_tracebacks_are_shown_only_when_asked_for(run: Run) -> None:
    member = run.members.by_id["a"]
    member.blame("ValueError", "no cuda", task=4, traceback="File x")
    assert client_of(run, member, tracebacks=False).last_error.traceback == ""
    shown = client_of(run, member, tracebacks=True).last_error
    assert (shown.type, shown.message, shown.task_id, shown.traceback) == (
        "ValueError",
        "no cuda",
        4,
        "File x",
    )
    member.session = None
    assert client_of(run, member, tracebacks=False).state == pb.Client.STATE_OFFLINE


@pytest.mark.parametrize("late", [True, False])
async def test_a_closed_round_is_shown_with_its_measurement(run: Run, late: bool) -> None:
    closed = ClosedRound(
        number=2,
        version=2,
        opened=1.0,
        closed=2.0,
        workers=("a",),
        window=0.5,
        rate=0.1,
        solve_seconds=0.01,
        loss_before=math.nan,
        loss_after=math.nan,
        details={"steps": 3.0},
        late=late,
        stale=1,
    )
    run.journal.measurements.append(Measurement(2, {"accuracy": 0.75}))
    shown = round_of(run, closed)
    expected = pb.Round.CLOSED_BY_DEADLINE if late else pb.Round.CLOSED_BY_TARGET
    assert (shown.closed_by, shown.late_updates, shown.steps_accepted) == (expected, 1, 3)
    assert shown.evaluation.metrics["accuracy"] == 0.75
    assert not shown.HasField("loss_after")


async def test_an_update_that_comes_twice_leaves_nothing_in_memory(run: Run) -> None:
    await run.start_from(LAYOUT, np.zeros(10, np.float32))
    await run.beside.settle()
    member, (task, *_) = run.members.by_id["a"], sorted(run.engine.tasks)
    header = session_pb2.Update(task_id=task, window=0.1, weight=run.engine.tasks[task].weight)
    for _ in range(2):
        await run.intake.deliver(member, header, Received(header, np.ones(10, np.float32)))
    session: Any = member.session
    outcomes = [m.outcome for m in session.sent if isinstance(m, session_pb2.Acknowledge)]
    assert outcomes == [session_pb2.Acknowledge.OUTCOME_ACCEPTED, session_pb2.Acknowledge.OUTCOME_DUPLICATE]
    assert run.intake.results == {}
    await run.beside.settle()


async def test_an_update_of_someone_who_does_not_train_is_refused(run: Run) -> None:
    await run.start_from(LAYOUT, np.zeros(10, np.float32))
    judge = session_pb2.Hello(worker_id="judge", role=session_pb2.ROLE_EVALUATOR)
    member = run.members.admit(judge, Ears(), "ipv4:2")  # type: ignore[arg-type]
    header = session_pb2.Update(task_id=1)
    await run.intake.deliver(member, header, Received(header, np.ones(10, np.float32)))
    session: Any = member.session
    (answer,) = session.sent
    assert answer.reason == session_pb2.Acknowledge.REASON_UNKNOWN_TASK
    await run.beside.settle()


async def test_a_task_cancelled_before_it_is_sent_does_not_end_the_coordinator(run: Run) -> None:
    heavy, busy = Layout.flat(100_000), threading.Event()
    run.beside.spawn(run.beside.numerics(busy.wait))  # type: ignore[arg-type]  # what it returns is not used
    await run.start_from(heavy, np.zeros(heavy.size, np.float32))
    for _ in range(5):
        await asyncio.sleep(0)  # the tasks get in line behind the busy thread
    for name in ("a", "b"):
        run.handle(Enrolled(name, 10))  # back without its task: the task is taken away
    busy.set()
    await run.beside.settle()
    assert run.failure is None
    run.beside.close()
