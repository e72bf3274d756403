"""Helper processes that are given one job at a time and answer over a pipe.

They are started anew rather than forked, since torch's and gRPC's threads do not survive a fork. A pipe
that closes tells either side that the other is gone, so nobody outlives the parent and no wait is for ever.
"""

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Self

from fedecado.common.errors import FedecadoError

Main = Callable[[Connection, Any], None]
"""What a helper does: (pipe to the parent, what it was started with) -> None, until the pipe closes."""

GRACE_SECONDS = 5.0
"""So long a helper may take to end after it was told to."""


class Staff:
    """Some processes that run `main`; use it as a context."""

    def __init__(self, count: int, main: Main, given: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._processes: dict[Connection, BaseProcess] = {}
        self.idle: list[Connection] = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_run, args=(main, theirs, given), daemon=True)
            with _ctrl_c_held():
                process.start()
            theirs.close()
            self._processes[ours] = process
            self.idle.append(ours)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def give(self, job: Any) -> Connection:
        """Send a job to an idle helper."""
        helper = self.idle.pop()
        helper.send(job)
        return helper

    def answers(self) -> Iterator[tuple[Connection, Any]]:
        """Wait for helpers that have something to say, and give what each says."""
        for ready in wait(list(self._processes)):
            assert isinstance(ready, Connection)  # noqa: S101 - only such were waited for
            try:
                yield ready, ready.recv()
            except (EOFError, ConnectionError):
                process = self._processes[ready]
                process.join(GRACE_SECONDS)
                raise FedecadoError(
                    f"a helper process ended with exit code {process.exitcode}; "
                    "its last words stand above, and if there are none it may have run out of memory"
                ) from None

    def close(self) -> None:
        for helper, process in self._processes.items():
            helper.close()
            process.terminate()
        for process in self._processes.values():
            process.join(GRACE_SECONDS)
            if process.exitcode is None:
                process.kill()
                process.join()
        self._processes.clear()


def _run(main: Main, pipe: Connection, given: Any) -> None:
    # Ctrl-C reaches the whole group; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with _quiet_end():
        main(pipe, given)


@contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Ctrl-C waits until the end, and for ever in a process that is started meanwhile.

    Until a helper has come to `_run` it would die of it with a traceback.
    """
    resource_tracker.ensure_running()  # process.start would begin it, and let Ctrl-C through after that
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _quiet_end() -> Iterator[None]:
    """The parent closing the pipe is how a helper's work ends."""
    try:
        yield
    except (EOFError, ConnectionError):
        return
