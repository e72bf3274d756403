"""One worker's stream: a reader, a writer, and an outbox between the run and the writer.

The outbox holds messages and references to encoded versions that all workers share, so a slow reader
costs a few references, not copies; one that lets them pile up, or stands still, is cut off.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any, final

from google.protobuf.message import Message

from fedecado.common.errors import ProtocolError
from fedecado.common.logs import about
from fedecado.common.timeouts import Timeouts
from fedecado.common.wire import BulkChunk
from fedecado.server.coordinator.inbox import Arrival, Inbox
from fedecado.server.coordinator.members import Member
from fedecado.server.coordinator.peers import Peer
from fedecado.server.coordinator.quotas import Meter
from fedecado.v1 import session_pb2 as pb

log = logging.getLogger(__name__)

OUTBOX_ITEMS = 64
"""A worker has one task at a time, so even a busy session needs only a handful."""

Parcel = Iterable[Message | bytes]


@final
class Session:
    """A welcomed worker's stream; `member` is set when it is admitted."""

    def __init__(self, context: Any, timeouts: Timeouts, inbox: Inbox, meter: Meter, slowest: float) -> None:
        self._context, self._timeouts, self._inbox = context, timeouts, inbox
        self._meter, self._slowest = meter, slowest
        self._outbox: asyncio.Queue[Parcel | None] = asyncio.Queue()
        self._closing = False
        self.member: Member | None = None
        self.peer: Peer | None = None
        """Who the certificate says it is; none without TLS."""
        self.sent = 0

    def send(self, content: Message) -> None:
        """Queue one message for the worker."""
        self.send_parcel((envelope(content),))

    def send_parcel(self, parcel: Parcel) -> None:
        """Queue messages that belong together; dropped when the session is closing."""
        if self._closing:
            return
        if self._outbox.qsize() >= OUTBOX_ITEMS:
            words = "%s does not read what it is sent; cutting it off"
            log.warning(words, self._name, extra=about(worker=self._name))
            self.close()
            return
        self._outbox.put_nowait(parcel)

    def close(self, content: Message | None = None) -> None:
        """End the session after what is queued, with a last message if given."""
        if self._closing:
            return
        if content is not None:
            self._outbox.put_nowait((envelope(content),))
        self._closing = True
        self._outbox.put_nowait(None)

    @property
    def queued(self) -> int:
        """How many parcels wait to be sent."""
        return self._outbox.qsize()

    async def read(self, within: float | None) -> pb.WorkerMessage | BulkChunk | None:
        """The worker's next message, None when it has no more; ProtocolError after `within` seconds."""
        try:
            async with asyncio.timeout(within):
                message = await self._context.read()
        except TimeoutError:
            raise ProtocolError(f"{self._name} sent nothing for {within:g} s when more was due") from None
        return message if isinstance(message, pb.WorkerMessage | BulkChunk) else None

    @property
    def receiving(self) -> bool:
        """Whether the worker is sending a vector."""
        return self._inbox.receiving

    async def arrivals(self) -> AsyncIterator[Arrival]:
        """What comes in, one after the other, until the worker ends the stream."""
        patience = 0.0
        while True:
            # Between transfers a worker may be silent for as long as it trains; keepalive finds it dead.
            message = await self._next(patience) if self._inbox.receiving else await self.read(None)
            if message is None:
                return
            idle, began = not self._inbox.receiving, time.monotonic()
            arrival = self._inbox.take(message)
            if self._inbox.receiving and (idle or not isinstance(message, BulkChunk)):
                patience = began + self._timeouts.stall + self._inbox.expected / self._slowest
            if arrival is not None:
                yield arrival
                arrival = None  # a vector, perhaps: it must not stay until the next one is here
            pause = self._meter.pause(message)
            if pause > 0:
                await asyncio.sleep(pause)
                patience += pause

    async def _next(self, until: float) -> pb.WorkerMessage | BulkChunk | None:
        """The next message of a transfer, which must neither stand still nor crawl."""
        left = until - time.monotonic()
        if left > self._timeouts.stall:
            return await self.read(self._timeouts.stall)
        try:
            return await self.read(max(left, 0.0))
        except ProtocolError:
            raise ProtocolError(
                f"{self._name} sends a vector at less than {self._slowest:g} bytes per second; "
                "use a faster line, or lower limits.slowest"
            ) from None

    async def write_all(self) -> None:
        """Send what is queued until the session is closed."""
        clock, stall = asyncio.get_running_loop().time, self._timeouts.stall
        # One timeout that moves on costs half of a new one for each message.
        async with asyncio.timeout(None) as limit:
            while (parcel := await self._outbox.get()) is not None:
                for message in parcel:
                    limit.reschedule(clock() + stall)
                    await self._context.write(message)
                    if isinstance(message, bytes):
                        self.sent += len(message)
                limit.reschedule(None)

    @property
    def _name(self) -> str:
        return "a worker" if self.member is None else self.member.id


_FIELDS: dict[type[Message], str] = {
    pb.Welcome: "welcome",
    pb.RequestInitialState: "request_initial_state",
    pb.Assign: "assign",
    pb.Evaluate: "evaluate",
    pb.Acknowledge: "acknowledge",
    pb.Cancel: "cancel",
    pb.Refused: "refused",
    pb.CoordinatorBye: "bye",
}


def envelope(content: Message) -> pb.CoordinatorMessage:
    """A coordinator's message around its content."""
    fields: dict[str, Any] = {_FIELDS[type(content)]: content}
    return pb.CoordinatorMessage(**fields)
