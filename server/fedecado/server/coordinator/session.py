"""One worker's stream: a reader, a writer, and an outbox between the run and the writer.

The outbox holds messages and references to encoded versions that all workers share, so a slow reader
costs a few references, not copies; one that lets them pile up, or stands still, is cut off.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator
from typing import Any, Final, final

from google.protobuf.message import Message

from fedecado.common.errors import ProtocolError
from fedecado.common.logs import about
from fedecado.common.moving_limit import MovingLimit
from fedecado.common.timeouts import Timeouts
from fedecado.common.wire import BulkChunk
from fedecado.server.coordinator.footing import Footing
from fedecado.server.coordinator.inbox import Arrival, Inbox, Received
from fedecado.server.coordinator.members import Member
from fedecado.server.coordinator.outbox import Outbox, Parcel
from fedecado.server.coordinator.peers import Peer
from fedecado.server.coordinator.quotas import Meter
from fedecado.v1 import session_pb2 as pb

log = logging.getLogger(__name__)

OUTBOX_ITEMS = 64
"""A worker has one task at a time, so even a busy session needs only a handful."""

MESSAGES: Final = (BulkChunk, pb.WorkerMessage)


@final
class Session:
    """A welcomed worker's stream; `member` is set when it is admitted."""

    def __init__(self, context: Any, timeouts: Timeouts, inbox: Inbox, meter: Meter, slowest: float) -> None:
        self._context, self._timeouts, self._inbox = context, timeouts, inbox
        self._meter, self._slowest = meter, slowest
        self._outbox = Outbox()
        self._closing = False
        self.member: Member | None = None
        self.peer: Peer | None = None
        """Who the certificate says it is; none without TLS."""
        self.footing = Footing()
        self.sent = 0

    def send(self, content: Message) -> None:
        """Queue one message for the worker."""
        self.send_parcel((envelope(content),))

    def send_parcel(self, parcel: Parcel) -> None:
        """Queue messages that belong together; dropped when the session is closing."""
        if self._closing:
            return
        if len(self._outbox) >= OUTBOX_ITEMS:
            words = "%s does not read what it is sent; cutting it off"
            log.warning(words, self._name, extra=about(worker=self._name))
            self.close()
            return
        self._outbox.put(parcel)

    def close(self, content: Message | None = None) -> None:
        """End the session after what is queued, with a last message if given."""
        if self._closing:
            return
        if content is not None:
            self._outbox.put((envelope(content),))
        self._closing = True
        self._outbox.put(None)

    @property
    def queued(self) -> int:
        """How many parcels wait to be sent."""
        return len(self._outbox)

    async def read(self, within: float | None) -> pb.WorkerMessage | BulkChunk | None:
        """The worker's next message, None when it has no more; ProtocolError after `within` seconds."""
        try:
            async with asyncio.timeout(within):
                message = await self._context.read()
        except TimeoutError:
            raise ProtocolError(f"{self._name} sent nothing for {within:g} s when more was due") from None
        return message if isinstance(message, MESSAGES) else None

    @property
    def receiving(self) -> bool:
        """Whether the worker is sending a vector."""
        return self._inbox.receiving

    async def arrivals(self) -> AsyncIterator[Arrival]:
        """What comes in, one after the other, until the worker ends the stream."""
        inbox, meter, stall = self._inbox, self._meter, self._timeouts.stall
        read, clock = self._context.read, asyncio.get_running_loop().time
        whole = after = math.inf
        try:
            async with MovingLimit() as limit:
                while isinstance(message := await read(), MESSAGES):
                    limit.move(math.inf)
                    idle, began = not inbox.receiving, clock()
                    arrival = inbox.take(message)
                    if inbox.receiving and (idle or not isinstance(message, BulkChunk)):
                        whole = began + stall + inbox.expected / self._slowest
                    if arrival is not None:
                        if isinstance(arrival, Received):
                            meter.asked_for(enclosed=arrival.enclosed)
                        yield arrival
                        arrival = None  # a vector, perhaps: it must not stay until the next one is here
                    pause = meter.pause(message)
                    if pause > 0:
                        await asyncio.sleep(pause)
                        whole += pause
                    message = None  # so that the next one, of whomever, is written where this one is in cache
                    # Between transfers a worker is silent for as long as it trains; keepalive finds it dead.
                    if inbox.receiving:
                        after = clock() + stall
                        limit.move(min(after, whole))
        except TimeoutError:
            raise ProtocolError(self._too_slow(stood_still=after <= whole)) from None

    def _too_slow(self, *, stood_still: bool) -> str:
        """What is wrong with a transfer that took too long."""
        if stood_still:
            return f"{self._name} sent nothing for {self._timeouts.stall:g} s when more was due"
        return (
            f"{self._name} sends a vector at less than {self._slowest:g} bytes per second; "
            "use a faster line, or lower limits.slowest"
        )

    async def write_all(self) -> None:
        """Send what is queued until the session is closed."""
        clock, stall, write = asyncio.get_running_loop().time, self._timeouts.stall, self._context.write
        async with MovingLimit() as limit:
            while (parcel := await self._outbox.get()) is not None:
                for message in parcel:
                    limit.move(clock() + stall)
                    await write(message)
                    if isinstance(message, bytes):
                        self.sent += len(message)
                limit.move(math.inf)

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
