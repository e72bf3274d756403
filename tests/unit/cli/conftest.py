"""A coordinator's admin service for the operator's commands to talk to."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from fedecado.v1 import admin_pb2 as pb
from fedecado.v1.admin_pb2_grpc import AdminServiceServicer, add_AdminServiceServicer_to_server


class FakeCoordinator(AdminServiceServicer):
    """Answers what the test says; `calls` are the requests so far.

    Each WatchStatus call takes one list of `streams`: it sends those statuses and ends, or stays open
    when the list ends with None. `refusal` makes every call fail with a code and a text.
    """

    def __init__(self) -> None:
        self.status = pb.RunStatus(run_id="r-1", run_name="demo", phase=pb.PHASE_RUNNING)
        self.workers: list[pb.Client] = []
        self.rounds: list[pb.Round] = []
        self.streams: list[list[pb.RunStatus | None]] = []
        self.model: list[pb.GetModelResponse] = []
        self.calls: list[Any] = []
        self.refusal: tuple[grpc.StatusCode, str] | None = None
        self.serving, self.port = True, 0
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def Status(self, request: Any, context: Any) -> Any:  # noqa: N802 - the method's name on the wire
        await self._take(request, context)
        return pb.StatusResponse(status=self.status)

    async def WatchStatus(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802 - as above
        await self._take(request, context)
        for status in self.streams.pop(0):
            if status is None:
                await asyncio.Event().wait()
            else:
                yield pb.WatchStatusResponse(status=status)

    async def ListClients(self, request: Any, context: Any) -> Any:  # noqa: N802 - as above
        await self._take(request, context)
        rest = [client for client in self.workers if client.worker_id > request.after]
        page = pb.ListClientsResponse(has_more=len(rest) > request.limit)
        page.clients.extend(rest[: request.limit])
        for client in page.clients:
            if client.HasField("last_error") and not request.tracebacks:
                client.last_error.traceback = ""
        return page

    async def Pause(self, request: Any, context: Any) -> Any:  # noqa: N802 - as above
        return await self._enter(request, context, pb.PHASE_PAUSED, pb.PauseResponse)

    async def Resume(self, request: Any, context: Any) -> Any:  # noqa: N802 - as above
        return await self._enter(request, context, pb.PHASE_RUNNING, pb.ResumeResponse)

    async def Stop(self, request: Any, context: Any) -> Any:  # noqa: N802 - as above
        return await self._enter(request, context, pb.PHASE_STOPPING, pb.StopResponse)

    async def DropClient(self, request: Any, context: Any) -> Any:  # noqa: N802 - as above
        await self._take(request, context)
        return pb.DropClientResponse(client=pb.Client(worker_id=request.worker_id))

    async def BanClient(self, request: Any, context: Any) -> Any:  # noqa: N802 - as above
        await self._take(request, context)
        known = any(client.worker_id == request.worker_id for client in self.workers)
        return pb.BanClientResponse(client=pb.Client(worker_id=request.worker_id) if known else None)

    async def UnbanClient(self, request: Any, context: Any) -> Any:  # noqa: N802 - as above
        await self._take(request, context)
        return pb.UnbanClientResponse(client=pb.Client(worker_id=request.worker_id))

    async def GetModel(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802 - as above
        await self._take(request, context)
        for piece in self.model:
            yield piece

    async def ListRounds(self, request: Any, context: Any) -> Any:  # noqa: N802 - as above
        await self._take(request, context)
        rest = [found for found in self.rounds if found.number > request.after]
        return pb.ListRoundsResponse(rounds=rest[: request.limit], has_more=len(rest) > request.limit)

    async def Checkpoint(self, request: Any, context: Any) -> Any:  # noqa: N802 - as above
        raise NotImplementedError

    async def _take(self, request: Any, context: Any) -> None:
        self.calls.append(request)
        if self.refusal is not None:
            await context.abort(*self.refusal)

    async def _enter(self, request: Any, context: Any, phase: Any, answer: Any) -> Any:
        await self._take(request, context)
        self.status.phase = phase
        return answer(status=self.status)

    def start(self) -> None:
        """Serve on the port of before, or on a free one; returns when it listens."""
        ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(ready),), daemon=True)
        self._thread.start()
        assert ready.wait(10)

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(10)
            self._loop = None

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        add_AdminServiceServicer_to_server(self, server)
        states = health.aio.HealthServicer()
        state = health_pb2.HealthCheckResponse
        await states.set("", state.SERVING if self.serving else state.NOT_SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(states, server)
        self.port = server.add_insecure_port(self.target)
        await server.start()
        ready.set()
        await self._over.wait()
        await server.stop(0)


@pytest.fixture
def coordinator() -> Iterator[FakeCoordinator]:
    fake = FakeCoordinator()
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def moment() -> Timestamp:
    now = Timestamp()
    now.GetCurrentTime()
    return now
