"""The Admin service: what operators, the command line and the dashboard ask."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, final

import grpc

from fedecado.common.layout import Vector
from fedecado.common.model_file import load_model
from fedecado.common.wire import encode
from fedecado.server.coordinator import exclusion
from fedecado.server.coordinator.about import About
from fedecado.server.coordinator.run import Run
from fedecado.server.coordinator.service import WORKER_ID
from fedecado.server.coordinator.views import client_of, metrics_of, round_of, status_of
from fedecado.server.rounds import Paused, Resumed, Stopped
from fedecado.v1 import admin_pb2 as pb
from fedecado.v1 import admin_pb2_grpc

PAGE = 200
"""Rows of a page when the caller does not say."""
MOST = 2_000
"""Rows of the largest page."""
HEARTBEAT_SECONDS = 1.0
"""A watcher hears from the run at least this often."""
WATCH_SECONDS = 0.2
"""Least time between two status messages when the caller does not say."""


@final
class AdminService(admin_pb2_grpc.AdminServiceServicer):
    """Reads the run's records and passes requests to its engine."""

    def __init__(self, run: Run, about: About) -> None:
        self._run, self._about = run, about
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End the calls that would go on for ever. Idempotent."""
        self._closing.set()
        self._run.notify()

    async def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusResponse:  # noqa: N802 - gRPC's name
        return pb.StatusResponse(status=status_of(self._run, self._about))

    async def WatchStatus(  # noqa: N802 - gRPC's name
        self, request: pb.WatchStatusRequest, context: Any
    ) -> AsyncIterator[pb.WatchStatusResponse]:
        pause = max(WATCH_SECONDS, request.min_interval_seconds)
        while True:
            changed = self._run.changed
            yield pb.WatchStatusResponse(status=status_of(self._run, self._about))
            if self._closing.is_set():
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause)
            # Not only changes: progress and the time that has gone by are worth a look, too.
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), HEARTBEAT_SECONDS)

    async def ListRounds(self, request: pb.ListRoundsRequest, context: Any) -> pb.ListRoundsResponse:  # noqa: N802 - gRPC's name
        limit = min(request.limit or PAGE, MOST)
        after = [closed for closed in self._run.journal.rounds if closed.number > request.after]
        return pb.ListRoundsResponse(
            rounds=[round_of(self._run, closed) for closed in after[:limit]], has_more=len(after) > limit
        )

    async def ListClients(self, request: pb.ListClientsRequest, context: Any) -> pb.ListClientsResponse:  # noqa: N802 - gRPC's name
        limit = min(request.limit or PAGE, MOST)
        after = sorted(name for name in self._run.members.by_id if name > request.after)
        return pb.ListClientsResponse(
            clients=[
                client_of(self._run, self._run.members.by_id[name], tracebacks=request.tracebacks)
                for name in after[:limit]
            ],
            has_more=len(after) > limit,
        )

    async def Pause(self, request: pb.PauseRequest, context: Any) -> pb.PauseResponse:  # noqa: N802 - gRPC's name
        self._run.handle(Paused())
        return pb.PauseResponse(status=status_of(self._run, self._about))

    async def Resume(self, request: pb.ResumeRequest, context: Any) -> pb.ResumeResponse:  # noqa: N802 - gRPC's name
        self._run.handle(Resumed())
        return pb.ResumeResponse(status=status_of(self._run, self._about))

    async def Stop(self, request: pb.StopRequest, context: Any) -> pb.StopResponse:  # noqa: N802 - gRPC's name
        reason = request.reason or "stopped by an operator"
        if request.when == pb.StopRequest.WHEN_NOW:
            self._run.handle(Stopped(reason))
        else:
            self._run.stop_after_round(reason)
        return pb.StopResponse(status=status_of(self._run, self._about))

    async def DropClient(self, request: pb.DropClientRequest, context: Any) -> pb.DropClientResponse:  # noqa: N802 - gRPC's name
        if request.worker_id not in self._run.members.by_id:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no worker {request.worker_id!r} was ever here")
        exclusion.drop(self._run, request.worker_id, request.reason or "by an operator")
        return pb.DropClientResponse(client=self._client(request.worker_id))

    async def BanClient(self, request: pb.BanClientRequest, context: Any) -> pb.BanClientResponse:  # noqa: N802 - gRPC's name
        if not WORKER_ID.fullmatch(request.worker_id):
            text = f"{request.worker_id[:140]!r} can be no worker's id"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        exclusion.ban(self._run, request.worker_id, request.reason or "by an operator")
        await self._run.durable.sync()
        return pb.BanClientResponse(client=self._client(request.worker_id))

    async def UnbanClient(self, request: pb.UnbanClientRequest, context: Any) -> pb.UnbanClientResponse:  # noqa: N802 - gRPC's name
        if request.worker_id not in self._run.engine.banned:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no worker {request.worker_id!r} is banned")
        exclusion.unban(self._run, request.worker_id)
        await self._run.durable.sync()
        return pb.UnbanClientResponse(client=self._client(request.worker_id))

    def _client(self, worker: str) -> pb.Client | None:
        member = self._run.members.by_id.get(worker)
        return None if member is None else client_of(self._run, member, tracebacks=False)

    async def Checkpoint(self, request: pb.CheckpointRequest, context: Any) -> pb.CheckpointResponse:  # noqa: N802 - gRPC's name
        began = time.perf_counter()
        path = await self._run.checkpoint()
        if path is None or self._run.federation is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "there is no model yet")
            raise AssertionError("abort raises")
        return pb.CheckpointResponse(
            model_version=self._run.federation.version,
            path=str(path.resolve()),
            seconds=time.perf_counter() - began,
        )

    async def GetModel(self, request: pb.GetModelRequest, context: Any) -> AsyncIterator[pb.GetModelResponse]:  # noqa: N802 - gRPC's name
        version, state = await self._model(request, context)
        layout = self._run.layout
        assert layout is not None  # noqa: S101 - there is a model, so it has a layout
        header = pb.ModelHeader(
            run_id=self._run.files.run_id,
            run_name=self._about.name,
            model_version=version,
            layout_json=layout.to_json(),
            layout_digest=layout.digest,
            state_bytes=state.nbytes,
        )
        measured = self._run.journal.measurement(version)
        if measured is not None:
            header.evaluation.CopyFrom(metrics_of(measured))
        yield pb.GetModelResponse(header=header)
        for message in encode(state):
            yield pb.GetModelResponse.FromString(message)

    async def _model(self, request: pb.GetModelRequest, context: Any) -> tuple[int, Vector]:
        """The version that was asked for; aborts the call when it is not to be had."""
        federation, best = self._run.federation, self._run.journal.best
        if federation is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "there is no model yet")
            raise AssertionError("abort raises")
        if request.WhichOneof("model") == "choice" and request.choice == pb.GetModelRequest.CHOICE_BEST:
            path = self._run.files.path("best")
            if best is None or not path.exists():
                await context.abort(grpc.StatusCode.NOT_FOUND, "no version has been evaluated yet")
                raise AssertionError("abort raises")
            _, state, metadata = await asyncio.to_thread(load_model, path)
            return int(metadata["version"]), state
        version = request.version if request.WhichOneof("model") == "version" else federation.version
        held = federation.state_of(version)
        if held is None:
            have = ", ".join(map(str, federation.versions_held))
            await context.abort(grpc.StatusCode.NOT_FOUND, f"version {version} is not held; there are {have}")
            raise AssertionError("abort raises")
        return version, held
