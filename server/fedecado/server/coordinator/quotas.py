"""How much a peer may ask of the coordinator: streams, identities, memory, bytes and messages per second.

What is over a quota waits (a reader that pauses lets HTTP/2 hold the sender back) or is told to come back
later; nothing an honest worker holds is lost by it.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from fedecado.common.errors import QuotaError
from fedecado.common.wire import BulkChunk
from fedecado.v1 import session_pb2 as pb

if TYPE_CHECKING:
    from fedecado.server.coordinator.members import Members

BURST_SECONDS: Final = 2.0
"""A rate may be exceeded for so long after a rest."""
SMALL_BYTES: Final = 1 << 16
"""Chunks below this count as messages: a vector in tiny ones costs the coordinator more than its bytes."""
TRANSFER: Final = 3.0
"""The fewest messages that a vector comes in which is not enclosed in its header."""
VISITS_PER_SECOND: Final = 1.0
VISITS_AT_ONCE: Final = 30.0
"""Connections of one worker: each is written to the journal."""

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Limits:
    """What the coordinator grants; None sets no limit."""

    sessions: int = 10_000
    """Streams at once, welcomed or not."""
    workers: int = 100_000
    """Workers ever enrolled: each is remembered for the run's life."""
    samples: int = 10**9
    """Largest sample count that is believed; a worker's weight follows from it."""
    memory: int | None = None
    """Bytes of vectors being received at once; None takes half of this machine's memory."""
    rate: float | None = None
    """Bytes per second from one worker."""
    total_rate: float | None = None
    """Bytes per second from all workers."""
    slowest: float = 4096.0
    """Bytes per second below which a transfer is cut off."""
    messages: float = 200.0
    """Messages per second from one worker; neither chunks of some size nor what was asked for count."""


@final
class Bucket:
    """A rate with room for a burst; going over it costs time."""

    def __init__(self, rate: float, burst: float, clock: Clock = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left, self._at = burst, clock()

    def take(self, amount: float) -> float:
        """Use so much; how many seconds to wait before using more."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate) - amount
        self._at = now
        return 0.0 if self._left >= 0 else -self._left / self._rate

    def give_back(self, amount: float) -> None:
        """What was taken does not count after all."""
        self._left = min(self._burst, self._left + amount)


@final
class Meter:
    """One session's share of the rates."""

    def __init__(self, limits: Limits, total: Bucket | None, clock: Clock) -> None:
        self._own = _bytes_bucket(limits.rate, clock)
        self._total = total
        self._messages = Bucket(limits.messages, 10 * limits.messages, clock)

    def pause(self, message: pb.WorkerMessage | BulkChunk) -> float:
        """Seconds to wait before the session's next message is read."""
        if self._own is None and self._total is None:
            large = isinstance(message, BulkChunk) and len(message.data) >= SMALL_BYTES
            return 0.0 if large else self._messages.take(1.0)
        size = len(message.data) if isinstance(message, BulkChunk) else message.ByteSize()
        pauses = [bucket.take(size) for bucket in (self._own, self._total) if bucket is not None]
        if size < SMALL_BYTES:
            pauses.append(self._messages.take(1.0))
        return max(pauses)

    def asked_for(self, *, enclosed: bool = False) -> None:
        """A vector that was asked for is here: its header, its last chunk and its trailer are free.

        There is one for each task, and how many tasks there are is not the worker's to say.
        """
        self._messages.give_back(1.0 if enclosed else TRANSFER)


@final
class Quotas:
    """What is in use now, against the limits."""

    def __init__(self, limits: Limits | None = None, clock: Clock = time.monotonic) -> None:
        self.limits = limits or Limits()
        self._clock = clock
        self._memory_limit = self.limits.memory or physical_memory() // 2
        self._total = _bytes_bucket(self.limits.total_rate, clock)
        self.sessions = 0
        self.memory = 0
        """Bytes of vectors being received."""

    @contextmanager
    def stream(self) -> Iterator[Meter]:
        """Room for one more stream while it lasts."""
        if self.sessions >= self.limits.sessions:
            raise QuotaError(
                f"{self.sessions} streams are open, which is all that limits.sessions allows; come back later"
            )
        self.sessions += 1
        try:
            yield Meter(self.limits, self._total, self._clock)
        finally:
            self.sessions -= 1

    def visit(self, worker: str, members: "Members") -> None:
        """Count a worker's arrival; QuotaError if there are too many, of it or of all."""
        known = members.by_id.get(worker)
        if known is None:
            if len(members.by_id) >= self.limits.workers:
                raise QuotaError(
                    f"{len(members.by_id)} workers are enrolled, which is all that limits.workers allows"
                )
            return
        if known.visits is None:
            known.visits = Bucket(VISITS_PER_SECOND, VISITS_AT_ONCE, self._clock)
        if (wait := known.visits.take(1.0)) > 0:
            raise QuotaError(f"{worker} connects too often; wait {wait:.1f} s", retry_after=wait)

    def reserve(self, nbytes: int) -> None:
        """Take memory for a vector; one is always granted, whatever its size."""
        if self.memory and self.memory + nbytes > self._memory_limit:
            raise QuotaError(
                f"{self.memory} bytes of vectors are on their way here, and {nbytes} more exceed "
                f"limits.memory = {self._memory_limit}; come back later"
            )
        self.memory += nbytes

    def release(self, nbytes: int) -> None:
        """Give it back."""
        self.memory -= nbytes

    def require_sane(self, nbytes: int) -> None:
        """Raise if a model of this size could not be received at all."""
        if nbytes > self._memory_limit:
            raise QuotaError(
                f"a model of {nbytes} bytes exceeds limits.memory = {self._memory_limit}", retry_after=None
            )


def physical_memory() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _bytes_bucket(rate: float | None, clock: Clock) -> Bucket | None:
    return None if rate is None else Bucket(rate, BURST_SECONDS * rate, clock)
