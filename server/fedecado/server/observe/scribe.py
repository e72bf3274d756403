"""Rounds and measurements for other tools: a thread writes, and nothing it does can stop the run."""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, final

from fedecado.server.coordinator.journal import ClosedRound, Measurement
from fedecado.server.observe.observer import Outcome, Window
from fedecado.server.observe.plain import imbalance
from fedecado.server.store import Flush

log = logging.getLogger(__name__)

WAITING: Final = 10_000
"""Entries kept for a writer that is slow; of more, new ones are left out."""
CLOSE_SECONDS: Final = 20.0
"""Time to write what is left when the run ends."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Numbers of one round or version."""

    step: int
    at: float
    values: Mapping[str, float]


class Writer(Protocol):
    """Used from one thread; may raise anything."""

    def write(self, entry: Entry) -> None: ...

    def close(self, *, finished: bool) -> None:
        """The run ended, or was interrupted."""


@final
class Scribe:
    """An observer that has a writer write. `open_writer` is called in its thread, at the first entry."""

    def __init__(self, name: str, open_writer: Callable[[], Writer]) -> None:
        self._name, self._open = name, open_writer
        self._entries: queue.Queue[Entry | None] = queue.Queue(WAITING)
        self._finished = self._complained = False
        self._thread = threading.Thread(target=self._run, name=f"{name}-writer", daemon=True)
        self._thread.start()

    def closed(self, closed: ClosedRound, windows: tuple[Window, ...]) -> None:
        self._put(Entry(closed.number, closed.closed, round_values(closed)))

    def measured(self, measurement: Measurement) -> None:
        values = {f"quality/{name}": value for name, value in measurement.metrics.items()}
        self._put(Entry(measurement.version, measurement.at, _known(values)))

    def updated(self, outcome: Outcome, reason: str = "") -> None: ...
    def refused(self, reason: str) -> None: ...
    def discarded(self) -> None: ...
    def saved(self, seconds: float, *, failed: bool) -> None: ...
    def flushed(self, what: Flush, seconds: float) -> None: ...

    def close(self, *, finished: bool) -> None:
        """Write what is left, within a while; blocks. Idempotent."""
        self._finished = finished
        deadline = time.monotonic() + CLOSE_SECONDS
        with suppress(queue.Full):
            self._entries.put(None, timeout=CLOSE_SECONDS)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            log.error("%s took longer than %g s; what was left for it is lost", self._name, CLOSE_SECONDS)

    def _put(self, entry: Entry) -> None:
        try:
            self._entries.put_nowait(entry)
        except queue.Full:
            if not self._complained:
                self._complained = True
                log.error("%s does not keep up; some rounds are left out there", self._name)

    def _run(self) -> None:
        writer: Writer | None = None
        try:
            while (entry := self._entries.get()) is not None:
                writer = writer or self._open()
                writer.write(entry)
            if writer is not None:
                writer.close(finished=self._finished)
        except Exception as error:  # of whatever the writer is made of
            log.error("%s failed and is given up; the run goes on: %r", self._name, error)
            while self._entries.get() is not None:
                pass  # so that nobody waits for room


def round_values(closed: ClosedRound) -> dict[str, float]:
    """A round in numbers, by the names that other tools show them under."""
    values = {
        "round/updates": len(closed.workers),
        "round/stale_updates": closed.stale,
        "round/seconds": closed.closed - closed.opened,
        "round/solve_seconds": closed.solve_seconds,
        "circuit/window": closed.window,
        "circuit/rate": closed.rate,
        "circuit/imbalance": imbalance(closed.rate, closed.details),
        "clients/loss_before": closed.loss_before,
        "clients/loss_after": closed.loss_after,
        **{f"solver/{name}": value for name, value in closed.details.items()},
    }
    return _known(values)


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float(v) for name, v in values.items() if v is not None and math.isfinite(v)}
