"""Counts and latencies that add up over seconds, processes and machines."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Self, final

_FINEST: Final = 1e-5
_STEP: Final = math.log(1.05)
"""Buckets are 5% wide: a quantile is off by half of that at most."""
KINDS: Final = 40
"""Kinds of errors told apart; their texts are the peer's, so their number must have a bound."""

LATENCIES: Final = ("welcome", "assign", "receive", "push", "lag")
"""The last is the generator's own: how late its event loop runs what is due."""


@final
class Histogram:
    """Durations in buckets of equal ratio; only those that hold something take memory."""

    def __init__(self, counts: Iterable[tuple[int, int]] = ()) -> None:
        self.counts: Counter[int] = Counter(dict(counts))

    def add(self, seconds: float) -> None:
        self.counts[max(0, round(math.log(max(seconds, _FINEST) / _FINEST) / _STEP))] += 1

    def merge(self, other: "Histogram") -> None:
        self.counts.update(other.counts)

    def __len__(self) -> int:
        return self.counts.total()

    def quantile(self, q: float) -> float:
        """The duration that a share `q` does not exceed; NaN of nothing."""
        rank, passed = max(1, math.ceil(q * len(self))), 0
        for bucket in sorted(self.counts):
            passed += self.counts[bucket]
            if passed >= rank:
                return _FINEST * math.exp(_STEP * bucket)
        return math.nan


@final
@dataclass(slots=True)
class Tally:
    """What simulated workers saw in some time."""

    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    latencies: dict[str, Histogram] = field(default_factory=lambda: {name: Histogram() for name in LATENCIES})

    def error(self, kind: str) -> None:
        self.errors[kind if kind in self.errors or len(self.errors) < KINDS else "other"] += 1

    def merge(self, other: "Tally") -> None:
        self.counts.update(other.counts)
        for kind, count in other.errors.items():
            self.errors[kind if kind in self.errors or len(self.errors) < KINDS else "other"] += count
        for name, histogram in other.latencies.items():
            self.latencies[name].merge(histogram)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        latencies = {name: sorted(h.counts.items()) for name, h in self.latencies.items()}
        return {"counts": dict(self.counts), "errors": dict(self.errors), "latencies": latencies}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Self:
        pairs = {name: [(int(b), int(n)) for b, n in raw] for name, raw in plain["latencies"].items()}
        return cls(
            Counter(plain["counts"]),
            Counter(plain["errors"]),
            {name: Histogram(pairs.get(name, ())) for name in LATENCIES},
        )
