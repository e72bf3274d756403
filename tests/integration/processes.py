"""`fedecado` commands as real processes, with all they say, for tests that start and kill them."""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, final

import grpc
import pytest_asyncio

from fedecado.v1 import admin_pb2 as pb
from fedecado.v1.admin_pb2_grpc import AdminServiceStub

PATIENCE = 120.0
"""No wait of a test is longer; it is reached only by a failure."""

READY = "^fedecado coordinator listens on "

HERE = Path(__file__).parent


@final
class Command:
    """A running process; `lines` is what it has written to standard output and error so far."""

    def __init__(self, name: str, process: Process) -> None:
        self.name, self.process = name, process
        self.lines: list[str] = []
        self._over = False
        self._news = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def text(self) -> str:
        """Everything it said, for a failing test to show."""
        code = self.process.returncode
        state = "running" if code is None else f"exit code {code}"
        return "\n".join([f"--- {self.name} ({state})", *self.lines])

    async def says(self, pattern: str, *, after: int = 0, within: float = PATIENCE) -> str:
        """The first line from `after` on that holds `pattern`, once it is there."""
        try:
            async with asyncio.timeout(within), self._news:
                while True:
                    found = next((line for line in self.lines[after:] if re.search(pattern, line)), None)
                    if found is not None:
                        return found
                    if self._over:
                        break
                    after = len(self.lines)
                    await self._news.wait()
        except TimeoutError:
            pass
        raise AssertionError(f"{self.name} did not say {pattern!r}\n{self.text}")

    async def exits(self, within: float = PATIENCE) -> int:
        """Its exit code, once all it said is read."""
        try:
            async with asyncio.timeout(within):
                # Shielded: the process is still to be killed, and read to its end, when this times out.
                await asyncio.shield(self._reading)
                return await self.process.wait()
        except TimeoutError:
            raise AssertionError(f"{self.name} still runs after {within:g} s\n{self.text}") from None

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def peak_memory(self) -> int:
        """The most bytes it ever had resident."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            async with self._news:
                self.lines.append(line.decode(errors="replace").rstrip())
                self._news.notify_all()
        async with self._news:
            self._over = True
            self._news.notify_all()


@final
class Processes:
    """Starts commands in a folder of their own; leaving the fixture ends them all."""

    def __init__(self, folder: Path, prefix: tuple[str, ...] = ()) -> None:
        self.folder, self._prefix = folder, prefix
        self.commands: list[Command] = []
        self.environment: dict[str, str] = {}
        """Variables for what is started from here on."""

    def within(self, *prefix: str) -> "Processes":
        """The same, but commands are started by `prefix`: on another host, say."""
        other = Processes(self.folder, prefix)
        other.commands = self.commands
        return other

    async def python(self, name: str, *arguments: str) -> Command:
        """Run this Python with the modules of this folder at hand."""
        own = {key: value for key, value in os.environ.items() if not key.startswith("FEDECADO_")}
        process = await asyncio.create_subprocess_exec(
            *self._prefix,
            sys.executable,
            "-X",
            "faulthandler",
            *arguments,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            cwd=self.folder,
            env={**own, "PYTHONPATH": str(HERE), "PYTHONUNBUFFERED": "1", **self.environment},
            limit=1 << 20,
        )
        command = Command(name, process)
        self.commands.append(command)
        return command

    async def start(self, name: str, *arguments: str) -> Command:
        """Run `fedecado ARGUMENTS`."""
        return await self.python(name, "-m", "fedecado.cli", *arguments)

    async def coordinator(self, *arguments: str, bind: str = "127.0.0.1:0") -> tuple[Command, str]:
        """A coordinator that listens, and where."""
        command = await self.start("coordinator", "coordinator", "--bind", bind, *arguments)
        return command, (await command.says(READY)).split()[-1]

    async def worker(self, address: str, name: str, *arguments: str) -> Command:
        """A worker with the id `name`, on one thread."""
        fixed = ("--coordinator", address, "--worker-id", name, "--worker-threads", "1")
        return await self.start(name, "worker", *fixed, *arguments)

    def model(self, which: str, run: str = "run") -> Path:
        """The file that a run leaves."""
        return self.folder / "runs" / run / f"{which}.safetensors"

    def text(self) -> str:
        return "\n".join(command.text for command in self.commands)

    async def close(self) -> None:
        for command in self.commands:
            await command.kill()


@asynccontextmanager
async def admin(address: str) -> AsyncIterator[Any]:
    """The admin service of a coordinator."""
    async with grpc.aio.insecure_channel(address) as channel:
        yield AdminServiceStub(channel)


async def until(
    address: str, reached: Callable[[pb.RunStatus], bool], within: float = PATIENCE
) -> pb.RunStatus:
    """The run's status, once it is as wanted."""
    status: pb.RunStatus | None = None
    try:
        async with asyncio.timeout(within), admin(address) as service:
            async for update in service.WatchStatus(pb.WatchStatusRequest()):
                status = pb.RunStatus()
                status.CopyFrom(update.status)
                if reached(status):
                    return status
    except TimeoutError:
        pass
    raise AssertionError(f"the run never got there; at last it was\n{status}")


async def clients(address: str) -> dict[str, pb.Client]:
    """The run's workers by id."""
    async with admin(address) as service:
        listed = await service.ListClients(pb.ListClientsRequest(tracebacks=True))
        return {client.worker_id: client for client in listed.clients}


async def closed_rounds(address: str) -> list[pb.Round]:
    """The run's rounds so far."""
    async with admin(address) as service:
        return list((await service.ListRounds(pb.ListRoundsRequest())).rounds)


@pytest_asyncio.fixture
async def processes(tmp_path: Path) -> AsyncIterator[Processes]:
    """Processes that are gone after the test; pytest shows what they said when it fails."""
    started = Processes(tmp_path)
    try:
        yield started
    finally:
        await started.close()
        print(started.text())
