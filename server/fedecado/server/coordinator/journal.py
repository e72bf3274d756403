"""What happened in the run so far: closed rounds, measurements, counts."""

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fedecado.common.records import record
from fedecado.server.algorithms import Report
from fedecado.server.federation import Result
from fedecado.server.observe.observer import Window
from fedecado.server.rounds import Target

ROUNDS_KEPT = 1_000
"""Closed rounds and measurements kept in memory, and in a checkpoint; the oldest are forgotten first.

A round of a hundred clients takes some 5 KB.
"""


@record
class ClosedRound:
    """One closed round."""

    number: int
    version: int
    opened: float
    closed: float
    workers: tuple[str, ...]
    window: float
    rate: float
    solve_seconds: float
    loss_before: float
    """Mean of the workers' losses; NaN when none was sent."""
    loss_after: float
    details: Mapping[str, float]
    late: bool = False
    """Whether its deadline had passed."""
    stale: int = 0
    """How many of its updates started from an older version."""


def summarise(
    number: int,
    version: int,
    delivered: Sequence[tuple[str, Result]],
    report: Report,
    seconds: float,
    opened: float,
    *,
    closed: float | None = None,
) -> ClosedRound:
    """What is worth remembering of a round that closed at some time, or just now."""
    losses = [(r.loss_before, r.loss_after) for _, r in delivered if not math.isnan(r.loss_after)]
    before, after = (math.nan, math.nan)
    if losses:
        before, after = (sum(side) / len(losses) for side in zip(*losses, strict=True))
    return ClosedRound(
        number=number,
        version=version,
        opened=opened,
        closed=time.time() if closed is None else closed,
        workers=tuple(client for client, _ in delivered),
        window=report.time,
        rate=report.rate,
        solve_seconds=seconds,
        loss_before=before,
        loss_after=after,
        details=report.details,
    )


@dataclass(frozen=True, slots=True)
class Measurement:
    """The metrics of a version."""

    version: int
    metrics: Mapping[str, float]
    at: float = field(default_factory=time.time)


@dataclass(slots=True)
class Journal:
    """The run's memory for people; decisions do not depend on it."""

    rounds: deque[ClosedRound] = field(default_factory=lambda: deque(maxlen=ROUNDS_KEPT))
    measurements: deque[Measurement] = field(default_factory=lambda: deque(maxlen=ROUNDS_KEPT))
    best: Measurement | None = None
    accepted: int = 0
    refused: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    started: float = field(default_factory=time.time)
    round_opened: float = field(default_factory=time.time)
    windows: tuple[Window, ...] = ()
    """Of the latest round alone: those of all rounds would grow with rounds times clients."""
    first_version: int = 0
    """The one the run began with; not 0 if that was another run's."""

    @property
    def latest(self) -> Measurement | None:
        return self.measurements[-1] if self.measurements else None

    def add_round(self, closed: ClosedRound, windows: tuple[Window, ...] = (), *, late: bool = False) -> None:
        """Remember a round; the next one opens now."""
        stale = sum(window.behind > 0 for window in windows)
        self.rounds.append(replace(closed, late=late, stale=stale) if late or stale else closed)
        self.windows = windows
        self.round_opened = closed.closed

    def measurement(self, version: int) -> Measurement | None:
        """The newest measurement of a version."""
        return next((m for m in reversed(self.measurements) if m.version == version), None)

    def improves(self, metrics: Mapping[str, float], target: Target | None) -> bool:
        """Whether these metrics are the best so far."""
        score = _score(metrics, target)
        best = None if self.best is None else _score(self.best.metrics, target)
        # NaN compares false with everything, so as a best it would stay for ever.
        return score is not None and not math.isnan(score) and (best is None or score > best)


def _score(metrics: Mapping[str, float], target: Target | None) -> float | None:
    """Higher is better: the run's target metric, or else accuracy, or else the loss turned round."""
    if target is not None:
        value = metrics.get(target.metric)
        return value if value is None or target.rising else -value
    if "accuracy" in metrics:
        return metrics["accuracy"]
    return -metrics["loss"] if "loss" in metrics else None
