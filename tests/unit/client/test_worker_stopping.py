"""A worker that is stopped says goodbye and goes, whatever it is at."""

import asyncio
import contextlib
import signal
import sys
import textwrap
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from scripted_coordinator import BIG, LIMIT, TRAINER, Coordinator, Line, Signs, Station, least_squares, quick

from fedecado.client.effects import Leave
from fedecado.client.work import Learner
from fedecado.common.timeouts import Timeouts
from fedecado.v1.session_pb2 import WorkerBye

pytest_plugins = ["scripted_fixtures"]


async def test_stop_while_training_says_goodbye_and_leaves_with_success(station: Station) -> None:
    endless = least_squares(TRAINER, epochs=10**6)
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(lambda: endless))
        line = await station.first_task(endless)
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
        line = await station.first_task(puppet)
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


@contextlib.asynccontextmanager
async def interrupted(
    coordinator: Coordinator, stall: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, Line]]:
    """A worker that is stuck in its first task and was sent one signal."""
    target = f"127.0.0.1:{coordinator.port}"
    async with process("-c", textwrap.dedent(STUCK), target, stall) as child:
        line = await coordinator.line()
        await line.welcome()
        await line.assign(1, np.zeros(3, "float32"))
        await stderr_until(child, b"stuck")
        child.send_signal(signal.SIGINT)
        yield child, line


async def test_a_signal_ends_the_process_even_if_user_code_is_stuck(coordinator: Coordinator) -> None:
    async with interrupted(coordinator, "1") as (child, line):
        assert await child.wait() == 0
        line.over.set()


async def test_the_second_signal_kills_at_once(coordinator: Coordinator) -> None:
    async with interrupted(coordinator, "3600") as (child, line):
        await stderr_until(child, b"a second signal")
        child.send_signal(signal.SIGINT)
        assert await child.wait() == -signal.SIGINT
        line.over.set()
