"""Arrival traces: what happened to a run from outside, in order, with its virtual times.

A trace holds the events that a clock or a network decides (who came, went, reported and when), not
what is computed from them. Replayed with the same workload it gives the same run to the bit; replayed
with another algorithm it shows that algorithm the very same arrivals.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedecado.common.errors import DataError
from fedecado.server.rounds import (
    DeadlinePassed,
    Disconnected,
    Enrolled,
    Event,
    LeaseExpired,
    TaskFailed,
    UpdateArrived,
)

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (Enrolled, Disconnected, UpdateArrived, TaskFailed, LeaseExpired, DeadlinePassed)
}


@dataclass(slots=True)
class Trace:
    """Timed outside events."""

    events: list[tuple[float, Event]] = field(default_factory=list)

    def add(self, at: float, event: Event) -> None:
        self.events.append((at, event))

    def __iter__(self) -> Iterator[tuple[float, Event]]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def save(self, path: Path) -> None:
        """One JSON object per line."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            for at, event in self.events:
                file.write(json.dumps({"at": at, "event": type(event).__name__, **asdict(event)}) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Trace":
        trace, now = cls(), 0.0
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot read the trace {path}: {error}") from error
        for number, line in enumerate(lines, 1):
            try:
                at, event = _parse(line)
                if not now <= at < math.inf:
                    raise ValueError(f"time {at} after {now}")
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise DataError(f"{path}, line {number}: not a trace event ({error!r})") from error
            trace.add(at, event)
            now = at
        return trace


def _parse(line: str) -> tuple[float, Event]:
    """One line; raises a builtin error where it is not a timed event."""
    values = json.loads(line)
    at, kind = float(values.pop("at")), _KINDS[values.pop("event")]
    if "tasks" in values:
        values["tasks"] = tuple(values["tasks"])
    event: Event = kind(**values)
    for name, value in values.items():
        parts, wanted = (value, int) if name == "tasks" else ([value], str if name == "client" else int)
        if not all(type(part) is wanted for part in parts):
            raise TypeError(f"{name} is {value!r}")
    return at, event
