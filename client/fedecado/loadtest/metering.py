"""A worker's stream, measured from outside: what passes, when, and what becomes of it.

The session and its connection are the real worker's. They are handed a call that looks at every message
on its way, and that can be cut, or told to spoil what is sent.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, final

from fedecado.client.connection import Address, Call
from fedecado.common.errors import ProtocolError
from fedecado.loadtest.mischief import UPDATE, Spoiler
from fedecado.loadtest.tally import Tally
from fedecado.v1 import session_pb2 as pb

_CHUNK, _TRAILER = 1, 2
ROUNDS_REMEMBERED: Final = 64

_REASON = pb.Acknowledge.Reason
_OUTCOMES: Final = {
    pb.Acknowledge.OUTCOME_ACCEPTED: "accepted",
    pb.Acknowledge.OUTCOME_DUPLICATE: "duplicate",
    pb.Acknowledge.OUTCOME_REFUSED: "refused",
}


@final
class RoundStarts:
    """When each round was first heard of by any worker of this process."""

    def __init__(self) -> None:
        self._seen: dict[int, float] = {}
        self.latest = 0

    def seen(self, number: int, now: float) -> float:
        if number not in self._seen:
            self._seen[number] = now
            self.latest = max(self.latest, number)
            if len(self._seen) > ROUNDS_REMEMBERED:
                del self._seen[next(iter(self._seen))]
        return self._seen[number]


@final
class Meter:
    """One worker's measurements, over all its connections; `tally` may be exchanged at any time."""

    def __init__(self, tallies: "Tallies", rounds: RoundStarts) -> None:
        self._tallies, self._rounds = tallies, rounds
        self._free = self._hello = self._header = self._due = 0.0
        self._pushed: dict[int, float] = {}
        self._cancelled = 0

    @property
    def tally(self) -> Tally:
        return self._tallies.current

    def sent(self, message: pb.WorkerMessage | bytes, now: float) -> None:
        """The line has taken a message, or is about to."""
        if isinstance(message, bytes):
            self.tally.counts["bytes_out"] += len(message)
            if message[:1] != UPDATE:
                return
            message = pb.WorkerMessage.FromString(message)
        else:
            self.tally.counts["bytes_out"] += message.ByteSize()
        match message.WhichOneof("content"):
            case "hello":
                self._hello = now
                self._pushed.clear()
            case "update":
                self._pushed[message.update.task_id] = now
            case "task_failed":
                self.tally.error(f"task failed: {message.task_failed.exception_type}")

    def received(self, data: bytes, now: float) -> None:
        """A message has come in."""
        self.tally.counts["bytes_in"] += len(data)
        # Every message is an envelope with one field, so its first byte tells which.
        if not data or data[0] >> 3 in (_CHUNK, _TRAILER):
            return
        message = pb.CoordinatorMessage.FromString(data)
        match message.WhichOneof("content"):
            case "welcome":
                self.tally.latencies["welcome"].add(now - self._hello)
                self.tally.counts["welcomes"] += 1
                self._free = now
            case "assign":
                self._header, self._due = now, max(self._rounds.seen(message.assign.round, now), self._free)
            case "acknowledge":
                self._acknowledged(message.acknowledge, now)
            case "cancel":
                self.tally.counts["cancelled"] += 1
                self._free, self._cancelled = now, message.cancel.task_id
            case "refused":
                name = pb.Refused.Reason.Name(message.refused.reason).removeprefix("REASON_").lower()
                self.tally.error(f"worker refused: {name}")

    def started(self, now: float) -> None:
        """An assignment is complete."""
        self.tally.counts["assigned"] += 1
        self.tally.latencies["receive"].add(now - self._header)
        self.tally.latencies["assign"].add(now - self._due)

    def _acknowledged(self, answer: pb.Acknowledge, now: float) -> None:
        self._free = now
        if not answer.task_id:
            return
        pushed = self._pushed.pop(answer.task_id, None)
        if pushed is not None:
            self.tally.latencies["push"].add(now - pushed)
        self.tally.counts[_OUTCOMES.get(answer.outcome, "unknown")] += 1
        if answer.outcome != pb.Acknowledge.OUTCOME_REFUSED:
            return
        if answer.task_id == self._cancelled or answer.reason == pb.Acknowledge.REASON_UNKNOWN_TASK:
            self.tally.counts["stale"] += 1  # taken back meanwhile, as the rules of the run want it
            return
        name = _REASON.Name(answer.reason).removeprefix("REASON_").lower()
        self.tally.error(f"update refused: {name}")


@final
class Tallies:
    """The tally in use; `take` hands it out and begins another."""

    def __init__(self) -> None:
        self.current = Tally()

    def take(self) -> Tally:
        taken, self.current = self.current, Tally()
        return taken


@final
class MeteredAddress:
    """The coordinator, reached over streams that are measured and may be cut."""

    def __init__(self, address: Address, meter: Meter, spoiler: Spoiler) -> None:
        self._address, self._meter, self._spoiler = address, meter, spoiler
        self._call: MeteredCall | None = None

    def cut(self) -> bool:
        """Break the stream that stands, as a crash or a network would; whether there was one."""
        if self._call is None:
            return False
        self._call.cut()
        return True

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[Call]:
        async with self._address.stream() as call:
            self._call = MeteredCall(call, self._meter, self._spoiler)
            try:
                yield self._call
            finally:
                self._call = None


class Cut(ProtocolError):  # noqa: N818 - wanted, and so no fault
    """The stream was broken on purpose."""


@final
class MeteredCall:
    """A call in the shape that the worker's connection uses."""

    def __init__(self, call: Call, meter: Meter, spoiler: Spoiler) -> None:
        self._call, self._meter, self._spoiler = call, meter, spoiler
        self._was_cut = False
        self._time = asyncio.get_running_loop().time

    def cut(self) -> None:
        self._was_cut = True
        self._call.cancel()

    async def read(self) -> Any:
        try:
            data = await self._call.read()
        except asyncio.CancelledError:
            # gRPC reports a call that was cancelled here as if the reader were.
            if self._was_cut:
                raise Cut("the line was cut") from None
            raise
        if isinstance(data, bytes):
            self._meter.received(data, self._time())
        return data

    async def write(self, message: pb.WorkerMessage | bytes) -> None:
        self._meter.sent(message, self._time())
        try:
            await self._call.write(await self._spoiler.spoil(message))
        except asyncio.CancelledError:
            if self._was_cut:
                raise Cut("the line was cut") from None
            raise

    async def done_writing(self) -> None:
        await self._call.done_writing()
