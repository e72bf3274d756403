"""Nothing leaves the process before what it follows from is safe on disk.

Events are appended to the store as they are handled. Acknowledgements and assignments wait here until
the commit that covers them; while one commit is under way others gather for the next, so the price of
a flush is shared by all who wait (group commit). Acknowledgements of short updates wait a little for
others: most rounds end within that time, so that all of theirs and the new tasks share one flush, and the
tasks need not wait for one under way. Without a store everything leaves at once.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, final

from fedecado.common.errors import StoreError
from fedecado.common.layout import DType
from fedecado.server.coordinator.beside import Beside
from fedecado.server.federation import Federation, Result
from fedecado.server.rounds import Event
from fedecado.server.store import Capture, Closed, Flushed, Landing, Outcome, Store

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 5.0
"""Pause before a commit that failed, on a full disk say, is tried again."""
PATIENCE_SECONDS: Final = 0.01
"""How long what is not urgent waits for others to share a commit with."""
CHECKPOINT_BYTES: Final = 1 << 30
"""A checkpoint is due after so many bytes of updates, too: a recovery replays no more than that."""


@final
class Durable:
    """The run's store, or the lack of one."""

    def __init__(self, beside: Beside, flushed: Flushed | None = None) -> None:
        self.store: Store | None = None
        self.checkpoint_seconds = 30.0
        """A checkpoint is due after so long."""
        self._beside, self._flushed = beside, flushed
        self._sequence = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._committing = self._checkpointing = False
        self._urgent = self._timed = False
        """Whether something that waits shall wait no longer, and whether a timer will say so."""
        self._since, self._bytes = time.monotonic(), 0

    @property
    def nbytes(self) -> int:
        """Space that the store takes."""
        return 0 if self.store is None else self.store.nbytes

    def open(self, store: Store) -> None:
        """From now on events go to this store."""
        self.store, self._sequence = store, store.durable
        if self._flushed is not None:
            store.tell_flushes(self._flushed)

    @property
    def waiting(self) -> int:
        """How many messages wait for the disk."""
        return len(self._waiting)

    def outcome_of(self, federation: Federation, closed: Closed) -> Outcome | None:
        """What a round made, to be recorded with the event that tells the engine of it."""
        return None if self.store is None else self.store.outcome_of(federation, closed)

    def record(self, event: Event, result: Result | None, outcome: Outcome | None = None) -> None:
        """Note an event that was handled; what is sent from here on follows from it."""
        if self.store is not None:
            self._sequence = self.store.append(event, result, outcome)
            self._bytes += 0 if result is None else result.state.nbytes

    def land(self, nbytes: int, dtype: DType) -> Landing | None:
        """Room for an update that goes to the disk as it arrives."""
        return None if self.store is None else self.store.land(nbytes, dtype)

    def note(self, content: dict[str, Any]) -> None:
        """Put something of the coordinator's own among the events."""
        if self.store is not None:
            self._sequence = self.store.note(content)

    def send(self, action: Callable[[], None], *, urgent: bool = True) -> None:
        """Act once everything recorded so far is durable; actions keep their order."""
        if self.store is None or (not self._waiting and self.store.durable >= self._sequence):
            action()
        else:
            self._waiting.append((self._sequence, action))
            self._urgent = self._urgent or urgent

    def flush(self) -> None:
        """Start a commit if something waits for one: now if it is urgent, soon if not."""
        if self.store is None or not self._waiting or self._committing:
            return
        if self._urgent:
            self._committing = True
            self._beside.spawn(self._commit())
        elif not self._timed:
            self._timed = True
            self._beside.after(PATIENCE_SECONDS, self._due)

    def _due(self) -> None:
        self._timed, self._urgent = False, bool(self._waiting)
        self.flush()

    async def sync(self) -> None:
        """Wait until everything recorded so far is durable."""
        if self.store is not None:
            await self._beside.files(self.store.commit)

    def checkpoint(self, capture: Callable[[Store], Capture]) -> None:
        """Write a checkpoint beside the loop if one is due."""
        due = time.monotonic() - self._since > self.checkpoint_seconds or self._bytes > CHECKPOINT_BYTES
        if self.store is None or self._checkpointing or not due:
            return
        try:
            taken = capture(self.store)
        except StoreError as error:
            self._put_off(error)
            return
        self._checkpointing = True
        self._beside.spawn(self._write(self.store, taken))

    async def close(self, capture: Callable[[Store], Capture] | None) -> None:
        """Write what is left, and leave the folder to others. Idempotent."""
        store, self.store = self.store, None
        if store is None:
            return
        try:
            work = store.commit if capture is None else lambda: store.checkpoint(capture(store))
            await self._beside.files(work)
        except StoreError as error:
            log.error("the last state could not be saved; the journal has all but it: %s", error)
        finally:
            await self._beside.files(store.close)

    async def _commit(self) -> None:
        try:
            while self._urgent and self.store is not None:
                self._urgent = False  # all that waits now is covered; later ones say so anew
                durable = await self._beside.files(self.store.commit)
                while self._waiting and self._waiting[0][0] <= durable:
                    self._waiting.popleft()[1]()
                self._urgent = self._urgent and bool(self._waiting)
        except StoreError as error:
            log.error("cannot write the journal, so nothing is acknowledged: %s", error)
            self._beside.after(RETRY_SECONDS, self._due)
            return
        finally:
            self._committing = False
        self.flush()  # for those who came meanwhile and were not in a hurry

    async def _write(self, store: Store, capture: Capture) -> None:
        began = time.perf_counter()
        try:
            # Long vectors and a thousand flows take seconds; acknowledgements must not wait for that.
            await asyncio.to_thread(store.settle, capture)
            files = await self._beside.files(store.switch, capture)
            self._since, self._bytes = time.monotonic(), 0
            log.debug("checkpoint written in %.3f s", time.perf_counter() - began)
        except StoreError as error:
            self._put_off(error)
        else:
            await self._sweep(store, files)
        finally:
            self._checkpointing = False

    async def _sweep(self, store: Store, files: list[str]) -> None:
        try:
            await asyncio.to_thread(store.sweep, files)  # as long as the flush, and as far from the commits
        except StoreError as error:
            log.error("files of an earlier checkpoint are left; the next start removes them: %s", error)

    def _put_off(self, error: StoreError) -> None:
        log.error("no checkpoint could be written; the journal grows meanwhile: %s", error)
        self._since = time.monotonic()
