"""Server-sent events for many browsers: a snapshot each, then the same deltas for all.

A browser that does not keep up loses what is queued for it and gets a new snapshot when it reads again,
so that what is kept for it never grows. Without I/O: `http` writes what `Subscriber.next` returns.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

QUEUE = 16
"""Deltas kept for a browser that is slow."""
BROWSERS = 64
"""Browsers served at a time."""


@final
class Subscriber:
    """One browser's end of the feed."""

    def __init__(self, snapshot: Callable[[], bytes]) -> None:
        self._snapshot = snapshot
        self._queue: deque[bytes] = deque()
        self._behind = True
        self._over = False
        self._news = asyncio.Event()
        self._news.set()

    def offer(self, message: bytes) -> None:
        """Queue a delta; a full queue is given up for a snapshot."""
        if self._behind:
            return  # the snapshot will have it
        if len(self._queue) >= QUEUE:
            self._queue.clear()
            self._behind = True
        else:
            self._queue.append(message)
        self._news.set()

    def end(self) -> None:
        """Let `next` return None once what is queued is read."""
        self._over = True
        self._news.set()

    async def next(self) -> bytes | None:
        """The next message, or None at the end."""
        await self._news.wait()
        if self._behind:
            self._behind = False
            message: bytes | None = self._snapshot()
        elif self._queue:
            message = self._queue.popleft()
        else:
            message = None
        if not self._queue and not self._over:
            self._news.clear()
        return message


@final
class Feed:
    """Passes deltas on, and makes a snapshot for those who need one."""

    def __init__(self, snapshot: Callable[[], Any]) -> None:
        self._state = snapshot
        self._cached: tuple[int, bytes] | None = None
        self._subscribers: set[Subscriber] = set()
        self._over = False
        self.sequence = 0

    @property
    def watched(self) -> bool:
        """Whether anyone looks."""
        return bool(self._subscribers)

    @property
    def full(self) -> bool:
        """Whether there is no room for one more."""
        return len(self._subscribers) >= BROWSERS

    def publish(self, delta: Any) -> None:
        """Send a delta to everyone."""
        self.sequence += 1
        message = _event("delta", self.sequence, delta)
        for subscriber in self._subscribers:
            subscriber.offer(message)

    @contextmanager
    def subscribe(self) -> Iterator[Subscriber]:
        """A new browser; it starts with a snapshot."""
        subscriber = Subscriber(self._snapshot)
        if self._over:
            subscriber.end()
        self._subscribers.add(subscriber)
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)

    def close(self) -> None:
        """End all streams. Idempotent."""
        self._over = True
        for subscriber in self._subscribers:
            subscriber.end()

    def _snapshot(self) -> bytes:
        if self._cached is None or self._cached[0] != self.sequence:
            self._cached = self.sequence, _event("snapshot", self.sequence, self._state())
        return self._cached[1]


def _event(kind: str, number: int, content: Any) -> bytes:
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return f"event: {kind}\nid: {number}\ndata: {text}\n\n".encode()
