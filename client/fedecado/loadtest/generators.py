"""Generator processes as their parent sees them."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, final

from fedecado.common.errors import FedecadoError
from fedecado.loadtest.plan import Plan
from fedecado.loadtest.tally import Tally

_LINE_BYTES: Final = 1 << 20


@dataclass(slots=True)
class _State:
    """The latest line of one generator."""

    spoke: bool = False
    connected: int = 0
    ended: int = 0
    round: int = 0
    cpu: float = 0.0
    late: float = 0.0


@final
class Generators:
    """Starts a process per plan; what they count since the last `take` is merged here."""

    def __init__(self, plans: Sequence[Plan], folder: Path, patience: float) -> None:
        self._plans, self._folder, self._patience = plans, folder, patience
        self._processes: list[Process] = []
        self._readers: list[asyncio.Task[None]] = []
        self._states = [_State() for _ in plans]
        self._honest, self._bad = Tally(), Tally()

    async def __aenter__(self) -> Self:
        for number, plan in enumerate(self._plans):
            process = await self._start(number)
            self._processes.append(process)
            assert process.stdin is not None  # noqa: S101 - it was made a pipe
            process.stdin.write(plan.to_json().encode() + b"\n")
            self._readers.append(asyncio.create_task(self._read(number, process)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.stop()
        finally:
            for process in self._processes:
                if process.returncode is None:
                    process.kill()

    @property
    def speaking(self) -> bool:
        """Whether all have begun; a busy machine takes its time to start them."""
        return all(state.spoke for state in self._states)

    @property
    def connected(self) -> int:
        return sum(state.connected for state in self._states)

    @property
    def ended(self) -> int:
        """Workers that are done for good."""
        return sum(state.ended for state in self._states)

    @property
    def round(self) -> int:
        """The newest round that any worker heard of."""
        return max(state.round for state in self._states)

    @property
    def cpu(self) -> float:
        """Seconds of processor time so far."""
        return sum(state.cpu for state in self._states)

    @property
    def late(self) -> float:
        """How late the slowest process was with its latest line."""
        return max(state.late for state in self._states)

    def take(self) -> tuple[Tally, Tally]:
        """What honest workers and bad actors saw since the last call."""
        taken = self._honest, self._bad
        self._honest, self._bad = Tally(), Tally()
        return taken

    async def any_ended(self) -> None:
        """Return when a process has ended; raise if it failed."""
        waits = [asyncio.create_task(process.wait()) for process in self._processes]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        for number, process in enumerate(self._processes):
            if process.returncode:
                text = self._log(number).read_text(encoding="utf-8", errors="replace")
                raise FedecadoError(
                    f"generator {number} ended with code {process.returncode}: {text[-2000:]}"
                )

    async def stop(self) -> None:
        """End them in good order, then not so; what they counted last is taken in. Idempotent."""
        for process in self._processes:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
        if self._readers:
            await asyncio.wait(self._readers, timeout=self._patience)
        for process, reader in zip(self._processes, self._readers, strict=True):
            reader.cancel()
            if process.returncode is None and not reader.done():
                process.kill()
            await process.wait()
            if reader.done() and not reader.cancelled():
                reader.result()  # raises if a line made no sense

    async def _start(self, number: int) -> Process:
        with self._log(number).open("wb") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "fedecado.loadtest.generator",
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                limit=_LINE_BYTES,
                # Ctrl-C reaches the parent alone, which then ends its children in order.
                start_new_session=True,
            )

    async def _read(self, number: int, process: Process) -> None:
        assert process.stdout is not None  # noqa: S101 - it was made a pipe
        async for line in process.stdout:
            self._heard(number, json.loads(line))

    def _heard(self, number: int, line: dict[str, Any]) -> None:
        names = ("connected", "ended", "round", "cpu", "late")
        self._states[number] = _State(True, **{name: line[name] for name in names})
        self._honest.merge(Tally.of(line["honest"]))
        self._bad.merge(Tally.of(line["bad"]))

    def _log(self, number: int) -> Path:
        return self._folder / f"generator-{number}.log"
