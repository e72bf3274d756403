"""A session cut off at every point where it waits leaves nothing behind, and others go on."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedecado.common.layout import Layout
from fedecado.common.timeouts import Timeouts
from fedecado.common.wire import encode, parse_coordinator_message, parse_worker_message
from fedecado.server.algorithms import make_algorithm
from fedecado.server.coordinator.about import About
from fedecado.server.coordinator.models import ModelFiles
from fedecado.server.coordinator.run import Run
from fedecado.server.coordinator.service import SessionService
from fedecado.server.rounds import Engine, Rules, describe
from fedecado.v1 import PROTOCOL_MAJOR
from fedecado.v1 import session_pb2 as pb

LIGHT, HEAVY = Layout.flat(100), Layout.flat(100_000)
"""The second is worked on in a thread, so there are more points to wait at."""


class Line:
    """A stream without a network: the test is the worker, `context` is what gRPC would give."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._up: asyncio.Queue[Any] = asyncio.Queue()
        self._down: asyncio.Queue[Any] = asyncio.Queue()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def auth_context(self) -> dict[str, Any]:
        return {}

    async def read(self) -> Any:
        return await self._up.get()

    async def write(self, message: Any) -> None:
        await asyncio.sleep(0)  # a point to wait at, as the network would be
        self._down.put_nowait(message)

    def say(self, **content: Any) -> None:
        self._up.put_nowait(pb.WorkerMessage(**content))

    def send(self, vector: Any) -> None:
        for message in encode(vector):
            self._up.put_nowait(parse_worker_message(message))

    def end(self) -> None:
        self._up.put_nowait(None)

    async def hear(self, kind: str) -> Any:
        """The next message of a kind; others are passed over."""
        while True:
            message = await self._down.get()
            if isinstance(message, bytes):
                message = parse_coordinator_message(message)
            if isinstance(message, pb.CoordinatorMessage) and message.WhichOneof("content") == kind:
                return getattr(message, kind)


async def work(line: Line, worker: str, incarnation: int) -> None:
    """An honest worker's whole visit: hello, the model if it is asked for, one task, goodbye."""
    layout, ones = line.layout, np.ones(line.layout.size, np.float32)
    line.say(
        hello=pb.Hello(
            protocol=pb.ProtocolVersion(major=PROTOCOL_MAJOR),
            worker_id=worker,
            incarnation=incarnation,
            connection=1,
            role=pb.ROLE_TRAINER,
            layout_json=layout.to_json(),
            layout_digest=layout.digest,
            samples=10,
        )
    )
    await line.hear("welcome")
    line.say(initial_state=pb.InitialState(layout_digest=layout.digest, state_bytes=layout.nbytes))
    line.send(np.zeros(layout.size, np.float32))
    assign = await line.hear("assign")
    header = pb.Update(
        task_id=assign.task_id,
        model_version=assign.model_version,
        window=0.1,
        weight=assign.weight,
        layout_digest=layout.digest,
        state_bytes=layout.nbytes,
    )
    line.say(progress=pb.Progress(task_id=assign.task_id, steps_done=1, steps_total=2))
    line.say(update=header)
    line.send(ones)
    acknowledged = await line.hear("acknowledge")
    while acknowledged.task_id == 0:  # the initial state's
        acknowledged = await line.hear("acknowledge")
    assert acknowledged.outcome == pb.Acknowledge.OUTCOME_ACCEPTED
    line.say(bye=pb.WorkerBye())
    line.end()


class Steps:
    """Counts the turns that tasks of a session take, and cancels its outermost one at the k-th."""

    def __init__(self, k: int | None) -> None:
        self.taken, self._k = 0, k

    async def run(self, session: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(session)
        while not task.done():
            self.taken += 1
            if self.taken == self._k:
                task.cancel()
            await asyncio.sleep(0)
        if not task.cancelled():
            task.result()


def new_run(folder: Path) -> tuple[Run, SessionService]:
    run = Run(Engine(Rules(max_rounds=None)), make_algorithm("fedecado"), ModelFiles(folder, "run-1"))
    return run, SessionService(run, Timeouts(60.0), About("test", "fedecado", "0"))


async def visit(service: SessionService, layout: Layout, name: str, incarnation: int, k: int | None) -> Steps:
    """One worker's visit, cut off at the k-th turn of the event loop unless k is none."""
    line, steps = Line(layout), Steps(k)
    worker = asyncio.create_task(work(line, name, incarnation))
    await steps.run(service.session(None, line))
    if k is None:
        await worker
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    return steps


@pytest.mark.parametrize("layout", [LIGHT, HEAVY], ids=["light", "heavy"])
async def test_a_session_cancelled_at_any_turn_leaves_a_sound_run(tmp_path: Path, layout: Layout) -> None:
    run, service = new_run(tmp_path)
    turns = (await visit(service, layout, "w", 1, None)).taken
    await run.beside.settle()
    run.beside.close()
    # In a thread's time many turns go by; beyond the light session's own few dozen they are alike.
    for k in range(1, min(turns, 60) + 1):
        run, service = new_run(tmp_path)
        await visit(service, layout, "w", 1, k)
        _check_nothing_left(run)
        async with asyncio.timeout(30):
            await visit(service, layout, "honest", 2, None)
            await run.beside.settle()
        assert run.failure is None
        assert run.engine.version >= 1, f"cancelled at turn {k}: {describe(run.engine)}"
        _check_nothing_left(run)
        run.beside.close()
        mine = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not mine, f"cancelled at turn {k}: {mine}"


def _check_nothing_left(run: Run) -> None:
    assert describe(run.engine)
    assert run.waiting_for()
    assert [member.id for member in run.members.by_id.values() if member.session is not None] == []
    assert run.engine.roster.connected == 0


async def test_an_error_of_the_line_ends_a_session_as_a_cancellation_does(tmp_path: Path) -> None:
    run, service = new_run(tmp_path)

    def broken(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def fail(*_: Any) -> Any:
            raise ConnectionResetError(name)

        return fail

    for name in ("read", "write"):
        line = Line(LIGHT)
        setattr(line, name, broken(name))
        worker = asyncio.create_task(work(line, "w", 1))
        with pytest.raises((ConnectionResetError, BaseExceptionGroup)):
            await service.session(None, line)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        _check_nothing_left(run)
    await visit(service, LIGHT, "honest", 2, None)
    await run.beside.settle()
    assert run.engine.version == 1
    run.beside.close()
