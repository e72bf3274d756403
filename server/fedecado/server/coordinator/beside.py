"""Work beside the event loop: two threads, tasks that nobody awaits, timers."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

log = logging.getLogger(__name__)

R = TypeVar("R")


class Beside:
    """Numerics run in one thread, in order; file writes in another.

    A task that fails here is a fault of the coordinator itself: `failed` is called with it.
    """

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._numerics = ThreadPoolExecutor(1, thread_name_prefix="numerics")
        self._files = ThreadPoolExecutor(1, thread_name_prefix="files")
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self.queued: Counter[str] = Counter()
        """Jobs waiting or at work, by thread."""

    async def numerics(self, work: Callable[..., R], *arguments: Any) -> R:
        """Run work on long vectors, after what was asked for before."""
        return await self._in("numerics", self._numerics, work, arguments)

    async def files(self, work: Callable[..., R], *arguments: Any) -> R:
        """Run work that writes files, after what was asked for before."""
        return await self._in("files", self._files, work, arguments)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task; its failure is reported."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Act later, unless `settle` comes first."""

        def fire() -> None:
            self._timers.discard(handle)
            action()

        handle = asyncio.get_running_loop().call_later(seconds, fire)
        self._timers.add(handle)

    async def settle(self) -> None:
        """Cancel the timers and let the tasks end."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def close(self) -> None:
        """Free the threads. Idempotent."""
        self._numerics.shutdown()
        self._files.shutdown()

    async def _in(self, name: str, pool: ThreadPoolExecutor, work: Callable[..., R], arguments: Any) -> R:
        self.queued[name] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, partial(work, *arguments))
        finally:
            self.queued[name] -= 1

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("the coordinator failed", exc_info=error)
            self._failed(error)
