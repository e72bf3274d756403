"""A worker's end of the protocol, message by message, for tests that need to misbehave."""

import asyncio
import itertools
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import grpc
import numpy as np

from fedecado.common.layout import Layout, Vector
from fedecado.common.timeouts import Timeouts
from fedecado.common.tls import TlsFiles
from fedecado.common.transport import channel_options, open_async_channel
from fedecado.common.wire import BulkChunk, Receiver, encode, parse_coordinator_message, serialize_message
from fedecado.v1 import PROTOCOL_MAJOR
from fedecado.v1 import session_pb2 as pb

LAYOUT = Layout.flat(1000)

_incarnations = itertools.count(1)


class ProtocolClient:
    """One stream. Methods are steps of the protocol; nothing happens by itself."""

    def __init__(
        self,
        address: str,
        worker: str,
        layout: Layout,
        tls: TlsFiles | None = None,
        timeouts: Timeouts = Timeouts(3.0),  # noqa: B008 - a value that nobody changes
        *,
        growing: bool = True,
    ) -> None:
        """Unless its window is `growing`, gRPC takes no more than 64 KiB ahead of who reads."""
        self.worker, self.layout = worker, layout
        self.incarnation = next(_incarnations)
        self.connection = 0
        self.run_id = ""
        if growing:
            self._channel = open_async_channel(address, timeouts, tls)
        else:
            options = [*channel_options(timeouts), ("grpc.http2.bdp_probe", 0)]
            self._channel = grpc.aio.insecure_channel(address, options=options)
        self._call: Any = None

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call.cancel()
        await self._channel.close()

    def open(self) -> None:
        """A new stream on the same channel."""
        method: Any = self._channel.stream_stream(
            "/fedecado.v1.SessionService/Session", request_serializer=serialize_message
        )
        self._call = method()
        self.connection += 1

    def drop(self) -> None:
        """Break the stream as a crash would."""
        self._call.cancel()

    async def send(self, **content: Any) -> None:
        await self._call.write(pb.WorkerMessage(**content))

    async def send_raw(self, data: bytes) -> None:
        await self._call.write(data)

    async def receive(self) -> Any:
        """The content of the next message, or None at the end of the stream."""
        data = await self._call.read()
        if data is grpc.aio.EOF:
            return None
        message = parse_coordinator_message(data)
        if isinstance(message, BulkChunk):
            return message
        return getattr(message, str(message.WhichOneof("content")))

    async def expect(self, kind: type[Any]) -> Any:
        message = await self.receive()
        assert isinstance(message, kind), f"expected {kind.__name__}, got {message!r}"
        return message

    async def hello(self, *, expect: type[Any] | None = pb.Welcome, **changes: Any) -> Any:
        fields: dict[str, Any] = {
            "protocol": pb.ProtocolVersion(major=PROTOCOL_MAJOR),
            "worker_id": self.worker,
            "incarnation": self.incarnation,
            "connection": self.connection,
            "role": pb.ROLE_TRAINER,
            "layout_json": self.layout.to_json(),
            "layout_digest": self.layout.digest,
            "samples": 10,
            "curvature": 0.5,
            "run_id": self.run_id,
            **changes,
        }
        if expect is None:
            await self.send(hello=pb.Hello(**fields))
            return None
        # Read first, as a worker does: a coordinator that is full refuses before it hears the hello, and what
        # comes in after a write that failed is lost.
        answering = asyncio.ensure_future(self.expect(expect))
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self.send(hello=pb.Hello(**fields))
        answer = await answering
        if isinstance(answer, pb.Welcome):
            self.run_id = answer.run_id
        return answer

    async def receive_vector(self, size: int) -> Vector:
        receiver = Receiver(size, self.layout.dtype, max_bytes=size)
        while True:
            message = await self.receive()
            if isinstance(message, BulkChunk):
                receiver.add(message)
            else:
                return receiver.finish(message)

    async def send_vector(self, vector: Vector) -> None:
        for message in encode(vector):
            await self.send_raw(message)

    async def send_initial(self, state: Vector | None = None) -> None:
        await self.expect(pb.RequestInitialState)
        state = np.zeros(self.layout.size, self.layout.dtype) if state is None else state
        header = pb.InitialState(layout_digest=self.layout.digest, state_bytes=state.nbytes)
        await self.send(initial_state=header)
        await self.send_vector(state)
        acknowledgement = await self.expect(pb.Acknowledge)
        assert acknowledgement.task_id == 0

    async def receive_assign(self) -> tuple[pb.Assign, Vector]:
        assign = await self.expect(pb.Assign)
        if assign.HasField("state"):
            return assign, np.frombuffer(assign.state.data, self.layout.dtype)
        state = await self.receive_vector(assign.state_bytes)
        if assign.drift_bytes:
            await self.receive_vector(assign.drift_bytes)
        return assign, state

    async def send_update(self, assign: pb.Assign, state: Vector, **changes: Any) -> None:
        await self.send(update=self.update_header(assign, state, **changes))
        await self.send_vector(state)

    def update_header(self, assign: pb.Assign, state: Vector, /, **changes: Any) -> pb.Update:
        fields: dict[str, Any] = {
            "task_id": assign.task_id,
            "model_version": assign.model_version,
            "window": 0.1,
            "weight": assign.weight,
            "layout_digest": self.layout.digest,
            "state_bytes": state.nbytes,
            "steps": 1,
            **changes,
        }
        return pb.Update(**fields)

    async def work(self, step: float = 0.1) -> pb.Assign:
        """One honest task: move every parameter by `step`."""
        assign, state = await self.receive_assign()
        await self.send_update(assign, state + np.asarray(step, state.dtype))
        acknowledgement = await self.expect(pb.Acknowledge)
        assert acknowledgement.outcome == pb.Acknowledge.OUTCOME_ACCEPTED, acknowledgement
        return assign
