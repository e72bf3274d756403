"""An update on its way to the disk while it still arrives, so that a commit waits only for the last of it.

The vector is received into memory that the disk can read from directly: what has arrived is written past
the page cache, which saves a copy and memory for a file that nobody will read unless the run is recovered.
A file system that cannot do that takes ordinary writes.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path
from typing import Final, final

from fedecado.common import spares
from fedecado.common.layout import DType, Vector
from fedecado.server.store.faults import point

PIECE: Final = 4 << 20
"""Bytes that are written at once."""


@final
class Landing:
    """A vector to receive into, and the file that follows it.

    Whoever lets go of it before `finish` has made it durable and `keep` has given it a name lets go of its
    file, too.
    """

    def __init__(
        self, path: Path, nbytes: int, dtype: DType, executor: Executor, flush: Callable[[int], None]
    ) -> None:
        self.path, self._executor, self._flush = path, executor, flush
        self._descriptor: int | None = None
        self._bytes = spares.received.take(nbytes)
        self.vector: Vector = self._bytes[:nbytes].view(dtype)
        """To be filled from its begin on; see `reached`."""
        self.crc = 0
        """Of the vector; whoever receives it knows."""
        self._writing = _Progress()
        self.done = False
        """Whether `finish` found it whole."""
        self._work: list[Future[None]] = []
        self._descriptor = _create(path)

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            with suppress(OSError):
                self.path.unlink()

    def reached(self, received: int) -> None:
        """So many bytes have arrived, and stay as they are."""
        whole = received if received == self.vector.nbytes else received - received % PIECE
        if self._writing.begin(whole):
            self._work.append(self._executor.submit(_follow, self._writing, self._write))

    def finish(self) -> bool:
        """Wait until it is on the disk; false if that failed."""
        try:
            for work in self._work:
                work.result()
        except OSError:
            return False
        self.done = True
        return True

    def keep(self, path: Path) -> bool:
        """Give the finished file its name; false if it has it already."""
        if self._descriptor is None:
            return False
        self.path.rename(path)
        os.close(self._descriptor)
        self._descriptor, self.path = None, path
        point("landing.renamed")
        return True

    def _write(self, start: int, stop: int) -> None:
        assert self._descriptor is not None  # noqa: S101 - kept only after all work is done
        for at in range(start, stop, PIECE):
            piece = _round_up(min(PIECE, stop - at))
            _write(self._descriptor, self._bytes[at : at + piece].data, at)
            point("landing.half-written")
        if stop == self.vector.nbytes:
            os.ftruncate(self._descriptor, stop)
            self._flush(self._descriptor)
            point("landing.synced")


@final
class _Progress:
    """How far the writing has come; one thread at a time goes on with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at = self._target = 0
        self._busy = False

    def begin(self, target: int) -> bool:
        """There is work up to here; whether a thread has to be asked to do it."""
        with self._lock:
            self._target = target
            idle = not self._busy and self._at < target
            self._busy = self._busy or idle
            return idle

    def next(self, done: int | None = None) -> tuple[int, int] | None:
        """What is to be done after that is; none ends the thread's turn."""
        with self._lock:
            self._at = self._at if done is None else done
            self._busy = self._at < self._target
            return (self._at, self._target) if self._busy else None


def _follow(progress: _Progress, step: Callable[[int, int], None]) -> None:
    """Do all that is due; after a step that failed nothing more is done, and `finish` finds out."""
    part = progress.next()
    while part is not None:
        step(*part)
        part = progress.next(part[1])


def _round_up(nbytes: int) -> int:
    return -(-nbytes // spares.ALIGNED) * spares.ALIGNED


def _create(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags | getattr(os, "O_DIRECT", 0), 0o600)
    except OSError:  # in memory, say; what is wrong otherwise, this tells
        path.unlink(missing_ok=True)
        return os.open(path, flags, 0o600)


def _write(descriptor: int, data: memoryview, at: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, at)
        data, at = data[written:], at + written
