"""The one thread that computes, beside the event loop that talks.

Torch releases the interpreter's lock while it computes, so messages are answered meanwhile. Not an
executor: the interpreter waits for an executor's threads at exit, however long a training step takes.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar, final

T = TypeVar("T")


@final
class Background:
    """Does jobs in order; made and used on the event loop's thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._ended = asyncio.Event()
        threading.Thread(target=self._run, name="fedecado-training", daemon=True).start()

    @property
    def ended(self) -> bool:
        """Whether the thread is gone."""
        return self._ended.is_set()

    def submit(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Do `job` after all that was submitted before."""
        future: asyncio.Future[T] = self._loop.create_future()

        def do() -> None:
            try:
                result = job()
            except BaseException as error:  # even sys.exit() in user code must not end the thread
                self.call(_settle, future, None, error)
            else:
                self.call(_settle, future, result, None)

        self._jobs.put(do)
        return future

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """From a job: have the event loop call something, if it still runs."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    async def close(self, patience: float) -> None:
        """Take no more jobs and wait so many seconds for the running one; idempotent."""
        self._jobs.put(None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._ended.wait()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        self.call(self._ended.set)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
