"""One stream to a coordinator, from Hello to its end: bytes between gRPC and the session.

grpc.aio drops what a client's deserializer raises, so messages are parsed here from raw bytes.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol, final

import grpc

from fedecado.client.effects import Effect, Ending, HangUp, Retry, Send
from fedecado.client.session import Session
from fedecado.common import enclosed
from fedecado.common.errors import ProtocolError
from fedecado.common.moving_limit import MovingLimit
from fedecado.common.timeouts import Timeouts
from fedecado.common.tls import TlsFiles
from fedecado.common.transport import open_async_channel
from fedecado.common.wire import encode, parse_coordinator_message, serialize_message
from fedecado.v1.session_pb2 import Update, WorkerMessage
from fedecado.v1.transfer_pb2 import Trailer

logger = logging.getLogger(__name__)

_METHOD: Final = "/fedecado.v1.SessionService/Session"

Call = Any  # grpc.aio.StreamStreamCall; its stubs do not know a method without a deserializer


class Streams(Protocol):
    """Where new streams to a coordinator come from."""

    def stream(self) -> AbstractAsyncContextManager[Call]: ...


@dataclass(frozen=True, slots=True)
class Address:
    """Where the coordinator is."""

    target: str
    timeouts: Timeouts
    tls: TlsFiles | None = None

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[Call]:
        """A new channel with one call on it.

        A channel that failed answers from memory until its own backoff is over; a new one really tries.
        """
        async with open_async_channel(self.target, self.timeouts, self.tls) as channel:
            call: Call = channel.stream_stream(
                _METHOD, request_serializer=serialize_message, response_deserializer=None
            )()
            try:
                yield call
            finally:
                call.cancel()


@final
class Connection:
    """Carries a session over one stream; `perform` is given the effects that are not for the line."""

    def __init__(
        self,
        session: Session,
        timeouts: Timeouts,
        stopping: asyncio.Event,
        perform: Callable[[list[Effect]], None],
    ) -> None:
        self._session, self._timeouts = session, timeouts
        self._stopping, self._perform = stopping, perform
        self._outbox: asyncio.Queue[Send | HangUp] = asyncio.Queue()
        self._welcomed_at: float | None = None

    @property
    def stood(self) -> float:
        """Seconds since the welcome; 0 without one."""
        return 0.0 if self._welcomed_at is None else asyncio.get_running_loop().time() - self._welcomed_at

    def put(self, item: Send | HangUp) -> None:
        """Queue something to be sent. Progress may be dropped, and is while the line is busy."""
        busy = not self._outbox.empty()
        if busy and isinstance(item, Send) and item.message.WhichOneof("content") == "progress":
            return
        self._outbox.put_nowait(item)

    async def run(self, address: Streams) -> Ending:
        """Talk until either side ends it or the line breaks."""
        reason = "the coordinator closed the stream"
        try:
            async with asyncio.timeout(None) as limit, address.stream() as call, asyncio.TaskGroup() as group:
                self._perform(self._session.opened())
                beside = [group.create_task(self._write(call)), group.create_task(self._hang_up(limit))]
                await self._read(call)
                for task in beside:
                    task.cancel()
        except* (grpc.aio.AioRpcError, ProtocolError, TimeoutError) as errors:
            reason = _describe(errors)
        return self._session.ending or Retry(reason)

    async def _read(self, call: Call) -> None:
        session, clock = self._session, asyncio.get_running_loop().time
        try:
            async with MovingLimit() as limit:
                while session.ending is None or self._stopping.is_set():
                    limit.move(clock() + self._patience)
                    data = await call.read()
                    if data is grpc.aio.EOF:
                        return
                    self._perform(session.received(parse_coordinator_message(data)))
                    del data  # so that the next message is written where this one is in cache
                    if session.welcomed and self._welcomed_at is None:
                        self._welcomed_at = clock()
        except TimeoutError as error:
            what = "the rest of a transfer" if session.welcomed else "an answer to Hello"
            raise ProtocolError(f"waited {self._patience:g} s for {what} from the coordinator") from error

    @property
    def _patience(self) -> float:
        """Seconds to wait for the next message.

        Between tasks the coordinator may be silent for ever; keepalive tells whether it is there.
        """
        if not self._session.welcomed:
            return self._timeouts.answer
        return self._timeouts.stall if self._session.receiving else math.inf

    async def _write(self, call: Call) -> None:
        clock, stall = asyncio.get_running_loop().time, self._timeouts.stall
        try:
            async with MovingLimit() as limit:
                while isinstance(item := await self._outbox.get(), Send):
                    for message in self._messages(item):
                        limit.move(clock() + stall)
                        await call.write(message)
                    limit.move(math.inf)
        except TimeoutError as error:
            raise ProtocolError(f"the coordinator took nothing in for {stall:g} s") from error
        except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
            return  # the call is over; the reader learns why, after what is still to be read
        with suppress(asyncio.InvalidStateError):  # the coordinator may have ended the call by now
            await call.done_writing()

    def _messages(self, send: Send) -> Iterator[WorkerMessage | bytes]:
        if not self._session.wants(send):
            return
        if send.encloses and send.vector is not None:
            # As bytes: a message object would copy the vector three times.
            state = enclosed.field(Update.STATE_FIELD_NUMBER, send.vector)
            yield enclosed.with_fields(WorkerMessage.UPDATE_FIELD_NUMBER, send.message.update, state)
            return
        yield send.message
        for frame in () if send.vector is None else encode(send.vector):
            if not self._session.wants(send):
                # Without an end the coordinator would wait for the rest, and take the worker for stuck.
                yield WorkerMessage(trailer=Trailer())
                return
            yield frame

    async def _hang_up(self, limit: asyncio.Timeout) -> None:
        """When the worker is to stop: say goodbye, and wait for the end no longer than allowed."""
        await self._stopping.wait()
        self._perform(self._session.stop())
        # The other half of the time is for the thread that trains.
        drain = self._timeouts.drain / 2 if self._session.welcomed else 0.0
        limit.reschedule(asyncio.get_running_loop().time() + drain)


def _describe(errors: BaseException) -> str:
    """The first error that a group holds, in words."""
    while isinstance(errors, BaseExceptionGroup):
        errors = errors.exceptions[0]
    if isinstance(errors, grpc.aio.AioRpcError):
        # Of several addresses gRPC tells at length that all failed, and then how the last one did.
        details = (errors.details() or "no details").rpartition("last error: ")[2]
        return f"{errors.code().name.lower().replace('_', ' ')}: {details}"
    return str(errors) or "timed out"
