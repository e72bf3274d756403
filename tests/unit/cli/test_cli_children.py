"""Child processes: what they say first, how they fail, and that none is left."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from fedecado.cli.children import Children
from fedecado.common.errors import FedecadoError

SPEAK = "import sys, signal; print('to the log', file=sys.stderr); print('hello there', flush=True); "
OBEDIENT = SPEAK + "signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + OBEDIENT


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the argument as a script instead of a fedecado command."""
    real = asyncio.create_subprocess_exec

    async def run(*arguments: Any, **options: Any) -> Any:
        assert arguments[:3] == (sys.executable, "-m", "fedecado.cli")
        return await real(sys.executable, "-c", *arguments[3:], **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", run)


async def test_the_first_line_of_a_process_can_be_read_and_its_errors_are_in_its_log(
    tmp_path: Path, scripts: None
) -> None:
    async with Children(tmp_path, 10) as children:
        process = await children.start("coordinator", [OBEDIENT], speaks=True)
        assert await children.first_line("coordinator", 30) == "hello there\n"
    assert process.returncode == -signal.SIGTERM
    assert (tmp_path / "coordinator.log").read_text() == "to the log\n"


async def test_what_a_worker_prints_goes_to_its_log_however_much_it_is(tmp_path: Path, scripts: None) -> None:
    async with Children(tmp_path, 10) as children:
        await children.start("worker-0", ["print('x' * 1_000_000)"])
        assert await asyncio.wait_for(children.any_ended(["worker-0"]), 30) == "worker-0"
        assert not children.failed("worker-0")
    assert (tmp_path / "worker-0.log").stat().st_size > 1_000_000


async def test_a_process_that_ends_early_is_shown_with_the_end_of_its_log(
    tmp_path: Path, scripts: None
) -> None:
    async with Children(tmp_path, 10) as children:
        await children.start("coordinator", ["raise SystemExit('port in use')"], speaks=True)
        with pytest.raises(FedecadoError, match="port in use"):
            await children.first_line("coordinator", 30)


async def test_a_process_that_says_nothing_is_given_up(tmp_path: Path, scripts: None) -> None:
    async with Children(tmp_path, 10) as children:
        await children.start("coordinator", ["import signal; signal.pause()"], speaks=True)
        with pytest.raises(FedecadoError, match="not ready after"):
            await children.first_line("coordinator", 0.2)
        assert children.alive("coord") == 1


async def test_a_process_that_will_not_end_is_killed_in_time(tmp_path: Path, scripts: None) -> None:
    async with Children(tmp_path, 0.2) as children:
        process = await children.start("coordinator", [STUBBORN], speaks=True)
        await children.first_line("coordinator", 30)
    assert process.returncode == -signal.SIGKILL


async def test_an_impatient_second_interruption_leaves_no_orphans(tmp_path: Path, scripts: None) -> None:
    started: list[Any] = []
    running = asyncio.Event()

    async def federate() -> None:
        async with Children(tmp_path, 600) as children:
            started.append(await children.start("coordinator", [STUBBORN], speaks=True))
            await children.first_line("coordinator", 30)
            running.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(federate())
    await asyncio.wait_for(running.wait(), 30)
    task.cancel()
    for _ in range(5):  # let it begin to wait for the process
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.wait_for(started[0].wait(), 30) == -signal.SIGKILL
