"""A worker's stream reduced to bytes, so that a benchmark measures the server at its other end."""

import itertools
from collections.abc import Iterable
from typing import Any

import grpc

from fedecado.common.layout import Layout
from fedecado.common.timeouts import Timeouts
from fedecado.common.transport import open_async_channel
from fedecado.common.wire import serialize_message
from fedecado.v1 import PROTOCOL_MAJOR, PROTOCOL_MINOR
from fedecado.v1 import session_pb2 as pb
from fedecado.v1.transfer_pb2 import Enclosed

METHOD = "/fedecado.v1.SessionService/Session"
TRAILER = b"\x12"
"""How a message with a trailer begins, on either way."""

_incarnations = itertools.count(1)


class UnexpectedError(Exception):
    """The server sent something else than what was due."""


class Line:
    """One stream on a channel of its own. Chunks are counted and thrown away."""

    def __init__(self, address: str, worker: str, layout: Layout) -> None:
        self.worker, self.layout = worker, layout
        self._channel = open_async_channel(address, Timeouts(120.0))
        method: Any = self._channel.stream_stream(METHOD, request_serializer=serialize_message)
        self._call = method()
        self._kept: pb.Assign | None = None

    async def close(self) -> None:
        self._call.cancel()
        await self._channel.close()

    async def hello(self) -> None:
        """Enrol; the first of all workers also gives the model to start from, see `give_model`."""
        hello = pb.Hello(
            protocol=pb.ProtocolVersion(major=PROTOCOL_MAJOR, minor=PROTOCOL_MINOR),
            worker_id=self.worker,
            incarnation=next(_incarnations),
            connection=1,
            role=pb.ROLE_TRAINER,
            layout_json=self.layout.to_json(),
            layout_digest=self.layout.digest,
            samples=10,
            curvature=0.5,
        )
        await self._call.write(pb.WorkerMessage(hello=hello))
        await self._expect("welcome")

    async def give_model(self, frames: Iterable[bytes]) -> None:
        """Answer the request for a first model."""
        await self._expect("request_initial_state")
        header = pb.InitialState(layout_digest=self.layout.digest, state_bytes=self.layout.nbytes)
        await self._call.write(pb.WorkerMessage(initial_state=header))
        for frame in frames:
            await self._call.write(frame)
        await self._expect("acknowledge")

    async def receive(self) -> pb.Assign:
        """A task, when all that belongs to it has arrived."""
        assign: pb.Assign = await self._expect("assign")
        transfers = 0 if assign.HasField("state") else 2 if assign.drift_bytes else 1
        while transfers:
            if (await self._read()).startswith(TRAILER):
                transfers -= 1
        return assign

    async def send(self, assign: pb.Assign, frames: Iterable[bytes], **changes: Any) -> None:
        """The task's result, with the messages that follow its header; `changes` are of the header."""
        header = pb.Update(
            task_id=assign.task_id,
            model_version=assign.model_version,
            window=0.1,
            weight=assign.weight,
            layout_digest=self.layout.digest,
            state_bytes=self.layout.nbytes,
            steps=1,
        )
        header.MergeFrom(pb.Update(**changes))
        await self._call.write(pb.WorkerMessage(update=header))
        for frame in frames:
            await self._call.write(frame)

    async def acknowledged(self) -> None:
        """Wait until the result is accepted."""
        answer: pb.Acknowledge = await self._expect("acknowledge")
        assert answer.outcome == pb.Acknowledge.OUTCOME_ACCEPTED, answer

    async def work(self, state: Enclosed, rounds: int) -> None:
        """So many tasks, one after the other."""
        for _ in range(rounds):
            await self.send(await self.receive(), (), state=state)
            await self.acknowledged()

    async def work_until(self, state: Enclosed, version: int) -> None:
        """Tasks that start from older versions; the first other one is kept for the next call."""
        while True:
            assign = self._kept or await self.receive()
            self._kept = assign if assign.model_version >= version else None
            if self._kept is not None:
                return
            await self.send(assign, (), state=state)
            await self.acknowledged()

    async def _expect(self, kind: str) -> Any:
        message = pb.CoordinatorMessage.FromString(await self._read())
        if message.WhichOneof("content") != kind:
            raise UnexpectedError(f"{self.worker} expected {kind}, got {message}")
        return getattr(message, kind)

    async def _read(self) -> bytes:
        data = await self._call.read()
        if data is grpc.aio.EOF:
            raise SystemExit(f"the server ended the stream of {self.worker}")
        return bytes(data)
