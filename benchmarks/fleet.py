"""Many lines in this process's event loop, driven by benchmarks that are not asynchronous themselves."""

import asyncio
from collections.abc import Coroutine, Iterable
from contextlib import AbstractContextManager
from functools import cache
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import uvloop

from benchmarks.line import Line, UnexpectedError
from benchmarks.servers import Server
from fedecado.common.allocator import keep_chunk_buffers
from fedecado.common.enclosed import enclose, is_short
from fedecado.common.layout import Layout
from fedecado.common.wire import encode
from fedecado.v1 import session_pb2 as pb

R = TypeVar("R")

ATTEMPTS = 100


@cache
def _runner() -> asyncio.Runner:
    """The one loop of this process: grpc.aio does not get along with several."""
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


class Fleet:
    """So many workers of one server, with a model of so many parameters."""

    def __init__(self, opened: AbstractContextManager[Server], workers: int, parameters: int) -> None:
        keep_chunk_buffers()
        self._opened, self._workers = opened, workers
        self.layout = Layout.flat(parameters)
        self._vector = np.full(parameters, 0.5, np.float32)
        self._enclosed = enclose(self._vector) if is_short(self._vector) else None
        self._assigned: list[pb.Assign] = []
        self.lines: list[Line] = []

    def __enter__(self) -> Self:
        self.server = self._opened.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._all(line.close() for line in self.lines)
        self._opened.__exit__(kind, error, trace)

    def join(self, *, model: bool) -> None:
        """Enrol everyone; with `model` the first worker gives the one to start from."""
        self.connect(1)
        if model:
            self.run(self.lines[0].give_model(encode(np.zeros_like(self._vector))))
        self.connect(self._workers - 1)

    def connect(self, count: int) -> None:
        """Enrol more workers."""
        first = len(self.lines)
        for number in range(first, first + count):
            self.lines.append(self.line(f"w{number}"))
        self._all(line.hello() for line in self.lines[first:])

    def line(self, name: str) -> Line:
        """A line to the server, that has not said hello."""

        async def make() -> Line:
            return Line(self.server.address, name, self.layout)

        return self.run(make())

    def work(self, rounds: int) -> None:
        """So many whole rounds."""
        assert self._enclosed is not None
        self._all(line.work(self._enclosed, rounds) for line in self.lines)

    def churn(self, count: int) -> None:
        """The first so many lines break, and the same workers come back as new processes."""
        leaving, self.lines = self.lines[:count], self.lines[count:]
        self._all(line.close() for line in leaving)
        self.lines += self._all(self._return(line.worker) for line in leaving)

    async def _return(self, worker: str) -> Line:
        for _ in range(ATTEMPTS):
            line = Line(self.server.address, worker, self.layout)
            try:
                await line.hello()
                return line
            except UnexpectedError:  # refused: the server has not noticed yet that the old line is gone
                await line.close()
                await asyncio.sleep(0.1)
        raise SystemExit(f"{worker} was refused {ATTEMPTS} times")

    def work_until(self, version: int) -> None:
        """Work on all tasks that start from an older version."""
        assert self._enclosed is not None
        self._all(line.work_until(self._enclosed, version) for line in self.lines)

    def receive(self) -> None:
        """Everyone gets a task."""
        self._assigned = self._all(line.receive() for line in self.lines)

    def deliver(self, frames: Iterable[bytes] | None = None, **changes: Any) -> None:
        """Everyone sends a result and waits for the acknowledgement; one worker may send something else."""
        pairs = zip(self.lines, self._assigned, strict=True)
        self._all(self._deliver(line, assign, frames, changes) for line, assign in pairs)

    async def _deliver(
        self, line: Line, assign: pb.Assign, frames: Iterable[bytes] | None, changes: dict[str, Any]
    ) -> None:
        await line.send(assign, encode(self._vector) if frames is None else frames, **changes)
        await line.acknowledged()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        return _runner().run(work)

    def _all(self, work: Iterable[Coroutine[Any, Any, R]]) -> list[R]:
        async def gathered() -> list[R]:
            return await asyncio.gather(*work)

        return self.run(gathered())
