"""The coordinator under test, seen from outside: its Admin service, and its process if that can be seen.

Nothing here may fail the test: what cannot be read is left out of the report.
"""

import asyncio
import os
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

import grpc

from fedecado.common.timeouts import Timeouts
from fedecado.common.tls import TlsFiles
from fedecado.common.transport import open_async_channel
from fedecado.v1.admin_pb2 import RunStatus, StatusRequest
from fedecado.v1.admin_pb2_grpc import AdminServiceStub

_STATUS_SECONDS: Final = 10.0
_STATUS_PAUSE: Final = 0.5
_METRICS_SECONDS: Final = 5.0
_METRICS_BYTES: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class Vitals:
    """A process at a moment: processor seconds so far, bytes resident, and those that no file backs."""

    at: float
    """On the monotonic clock."""
    cpu: float
    rss: int
    anonymous: int | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """The coordinator at a moment; None is what could not be seen."""

    rounds: int | None = None
    accepted: int | None = None
    refused: int | None = None
    vitals: Vitals | None = None


@final
class Watch:
    """Looks at one coordinator. `pid` if it runs here, `metrics` if it serves them, else neither."""

    def __init__(
        self, target: str, tls: TlsFiles | None, *, pid: int | None = None, metrics: str | None = None
    ) -> None:
        self._status: RunStatus | None = None
        self._asking: asyncio.Task[None] | None = None
        self._channel = open_async_channel(target, Timeouts(), tls)
        self._admin = AdminServiceStub(self._channel)
        self._pid, self._metrics = pid, metrics

    async def __aenter__(self) -> Self:
        self._asking = asyncio.create_task(self._ask())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._asking is not None:
            self._asking.cancel()
        await self._channel.close()

    async def look(self) -> Sight:
        """How it is now; what it says of itself may be a little older if it is slow to answer."""
        vitals, status = await self._vitals(), self._status
        if status is None:
            return Sight(vitals=vitals)
        return Sight(status.rounds_closed, status.updates_accepted, status.updates_refused, vitals)

    async def _ask(self) -> None:
        """Ask for the status all the time: samples must not wait for a coordinator under load."""
        while True:
            try:
                answer = await self._admin.Status(StatusRequest(), timeout=_STATUS_SECONDS)
                self._status = answer.status
            except grpc.aio.AioRpcError:
                self._status = None
            await asyncio.sleep(_STATUS_PAUSE)

    async def _vitals(self) -> Vitals | None:
        if self._pid is not None:
            return of_process(self._pid)
        if self._metrics is not None:
            return await asyncio.to_thread(_scrape, self._metrics)
        return None


def of_process(pid: int) -> Vitals | None:
    """From Linux's /proc; None where there is none such."""
    try:
        # The name in the second field may hold anything but ends with the last parenthesis.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return None
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    sizes = dict.fromkeys(("VmRSS", "RssAnon"), 0)
    for name in sizes:
        with suppress(IndexError, ValueError):
            sizes[name] = 1024 * int(status.partition(f"\n{name}:")[2].split(maxsplit=1)[0])
    return Vitals(time.monotonic(), cpu, sizes["VmRSS"], sizes["RssAnon"])


def _scrape(url: str) -> Vitals | None:
    try:
        with urllib.request.urlopen(url, timeout=_METRICS_SECONDS) as answer:  # noqa: S310 - checked to be http(s)
            return of_metrics(answer.read(_METRICS_BYTES).decode(errors="replace"))
    except OSError:
        return None


def of_metrics(text: str) -> Vitals | None:
    """From what a coordinator serves to Prometheus."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name in ("process_cpu_seconds_total", "process_resident_memory_bytes"):
            with suppress(ValueError):
                found[name] = float(value.split()[0])
    if len(found) < 2:
        return None
    rss = int(found["process_resident_memory_bytes"])
    return Vitals(time.monotonic(), found["process_cpu_seconds_total"], rss)
