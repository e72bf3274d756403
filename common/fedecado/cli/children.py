"""Child processes with a log file each, that end with their parent."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from fedecado.common.errors import FedecadoError
from fedecado.common.private_files import private_folder

LOG_LINES = 15
"""So much of a log is shown when its process failed."""


class Children:
    """`fedecado` commands run as processes; leaving the context ends them in good order."""

    def __init__(self, folder: Path, patience: float) -> None:
        self._folder, self._patience = folder, patience
        self._running: dict[str, Process] = {}

    async def __aenter__(self) -> Self:
        private_folder(self._folder)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # Workers first: they say goodbye to a coordinator that is still there.
            await self._end([p for name, p in self._running.items() if name != "coordinator"])
            await self._end(list(self._running.values()))
        finally:
            # Whoever is impatient and interrupts this leaves no orphans either.
            for process in self._running.values():
                if process.returncode is None:
                    process.kill()

    async def start(self, name: str, arguments: Sequence[str], *, speaks: bool = False) -> Process:
        """Run `fedecado ARGUMENTS`; its log is NAME.log.

        Its standard output goes there, too, or `first_line` can read it if it `speaks`. Nobody reads on
        after that line, so a process that says more would come to stand still.
        """
        with self.log(name).open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "fedecado.cli",
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=PIPE if speaks else log,
                stderr=log,
                # Ctrl-C reaches the parent alone, which then ends its children in order.
                start_new_session=True,
            )
        self._running[name] = process
        return process

    async def first_line(self, name: str, within: float) -> str:
        """What a process says first on its standard output."""
        stdout = self._running[name].stdout
        assert stdout is not None  # noqa: S101 - it was made a pipe above
        try:
            async with asyncio.timeout(within):
                line = await stdout.readline()
        except TimeoutError:
            raise FedecadoError(f"{name} is not ready after {within:g} s; see {self.log(name)}") from None
        if not line:
            raise self.failure(name)
        return line.decode()

    async def any_ended(self, names: Sequence[str]) -> str:
        """The first of these processes to end."""
        waits = {asyncio.create_task(self._running[name].wait()): name for name in names}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return waits[done.pop()]
        finally:
            for wait in waits:
                wait.cancel()

    def alive(self, prefix: str) -> int:
        """How many processes whose names start so are running."""
        return sum(p.returncode is None for name, p in self._running.items() if name.startswith(prefix))

    def failed(self, name: str) -> bool:
        """Whether a process has ended, and not well."""
        return bool(self._running[name].returncode)

    def failure(self, name: str) -> FedecadoError:
        """An error with the end of a process's log."""
        lines = self.log(name).read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
        code = self._running[name].returncode
        return FedecadoError("\n  ".join([f"{name} ended with code {code}; its log ends with:", *lines]))

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    async def _end(self, processes: list[Process]) -> None:
        """Ask them all to end, and after a while no longer ask."""
        running = [process for process in processes if process.returncode is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._patience):
                await _all_ended(running)
        except TimeoutError:
            for process in running:
                if process.returncode is None:
                    process.kill()
            await _all_ended(running)


async def _all_ended(processes: list[Process]) -> None:
    for process in processes:
        await process.wait()
