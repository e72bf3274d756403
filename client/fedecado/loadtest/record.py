"""What a load test saw, second by second and in sum."""

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any, Final, final

from fedecado.loadtest.tally import LATENCIES, Tally
from fedecado.loadtest.trend import Trend, trend
from fedecado.loadtest.watching import Sight, Vitals

QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
LATE: Final = 0.1
"""Seconds of lag in the generators from which on the latencies are theirs as much as the coordinator's."""
COUNTED: Final = (
    *("accepted", "duplicate", "refused", "stale", "cancelled"),
    *("welcomes", "cuts", "deaths", "finished"),
)


@dataclass(frozen=True, slots=True)
class Second:
    """One sample; rates are per second since the one before, None is what could not be seen."""

    at: float
    """Seconds since the first worker was sent."""
    connected: int
    updates: float
    sent: float
    """Bytes from the coordinator, as the workers count them."""
    received: float
    errors: int
    push_p50: float | None
    push_p99: float | None
    assign_p99: float | None
    rounds: int | None
    cpu: float | None
    """Cores in use by the coordinator."""
    rss: int | None
    anonymous: int | None
    generator_cpu: float
    generator_late: float


@final
@dataclass(slots=True)
class Record:
    """Everything measured; sums are of the time after all workers were there, errors and welcomes of all."""

    workers: int
    bad_workers: int
    seconds: list[Second] = field(default_factory=list)
    honest: Tally = field(default_factory=Tally)
    bad: Tally = field(default_factory=Tally)
    errors: Tally = field(default_factory=Tally)
    connecting: float | None = None
    """Seconds until all were there; None before."""
    never_connected: int = 0
    ended: str = "time is up"

    @property
    def steady(self) -> list[Second]:
        """The samples of the time that counts."""
        return [] if self.connecting is None else [s for s in self.seconds if s.at > self.connecting]

    @property
    def duration(self) -> float:
        """Seconds that count."""
        return self.steady[-1].at - (self.connecting or 0.0) if self.steady else 0.0

    def rate(self, count: float) -> float:
        return count / self.duration if self.duration else 0.0

    @property
    def updates_rate(self) -> float:
        return self.rate(self.honest.counts["accepted"])

    @property
    def rounds_rate(self) -> float | None:
        """Rounds closed per second; None when the coordinator would not tell."""
        seen = [(s.at, s.rounds) for s in self.steady if s.rounds is not None]
        if len(seen) < 2:
            return None
        (start, first), (end, last) = seen[0], seen[-1]
        return (last - first) / (end - start)

    @property
    def error_count(self) -> int:
        return self.errors.errors.total() + self.never_connected

    @property
    def rss_growth(self) -> int | None:
        """Bytes between the medians of the second and of the last quarter; the first is for warming up."""
        sizes = [s.rss for s in self.steady if s.rss is not None]
        quarter = len(sizes) // 4
        if quarter < 1:
            return None
        return round(statistics.median(sizes[-quarter:]) - statistics.median(sizes[quarter : 2 * quarter]))

    @property
    def rss_trend(self) -> Trend | None:
        """Bytes per minute after the first quarter."""
        seen = [(s.at, float(s.rss)) for s in self.steady if s.rss is not None]
        return trend(seen[len(seen) // 4 :])

    @property
    def late(self) -> bool:
        """Whether the generators could not keep up, by the lag that a hundredth of their ticks exceed."""
        lag = self.quantile("lag", "p99")
        return lag is not None and lag > LATE

    @property
    def rss_most(self) -> int | None:
        return max((s.rss for s in self.seconds if s.rss is not None), default=None)

    def quantile(self, latency: str, name: str) -> float | None:
        histogram = self.honest.latencies[latency]
        return histogram.quantile(QUANTILES[name]) if len(histogram) else None

    def summary(self) -> dict[str, Any]:
        """The result in plain values."""
        steady, counts = self.steady, self.honest.counts
        cores, grows = [s.cpu for s in steady if s.cpu is not None], self.rss_trend
        return {
            "ended": self.ended,
            "workers": self.workers,
            "bad_workers": self.bad_workers,
            "seconds": self.duration,
            "connecting_seconds": self.connecting,
            "updates_per_second": self.updates_rate,
            "rounds_per_second": self.rounds_rate,
            "bytes_to_workers_per_second": self.rate(counts["bytes_in"]),
            "bytes_from_workers_per_second": self.rate(counts["bytes_out"]),
            "counts": {name: counts[name] for name in COUNTED},
            "latency_seconds": {
                name: {q: self.quantile(name, q) for q in QUANTILES}
                | {"count": len(self.honest.latencies[name])}
                for name in LATENCIES
            },
            "coordinator_cores": statistics.fmean(cores) if cores else None,
            "coordinator_rss_most": self.rss_most,
            "coordinator_rss_growth": self.rss_growth,
            "coordinator_rss_per_minute": None if grows is None else asdict(grows),
            "generator_cores": statistics.fmean([s.generator_cpu for s in steady]) if steady else None,
            "generators_late": self.late,
            "errors": dict(self.errors.errors.most_common())
            | ({"never connected": self.never_connected} if self.never_connected else {}),
            "bad_actors": {"counts": dict(self.bad.counts), "errors": dict(self.bad.errors)},
        }

    def series(self) -> list[dict[str, Any]]:
        return [asdict(second) for second in self.seconds]


@final
class Sampler:
    """Turns what was seen since the last sample into the next one."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._time = self._generator_cpu = 0.0
        self._vitals: Vitals | None = None

    def add(self, now: float, tallies: tuple[Tally, Tally], sight: Sight, at: "At") -> Second:
        """Sample, `now` seconds after the first worker was sent."""
        honest, _ = tallies
        span = max(now - self._time, 1e-6)
        second = Second(
            at=now,
            connected=at.connected,
            updates=honest.counts["accepted"] / span,
            sent=honest.counts["bytes_in"] / span,
            received=honest.counts["bytes_out"] / span,
            errors=honest.errors.total(),
            push_p50=_quantile(honest, "push", 0.5),
            push_p99=_quantile(honest, "push", 0.99),
            assign_p99=_quantile(honest, "assign", 0.99),
            rounds=sight.rounds,
            cpu=self._cores(sight.vitals),
            rss=None if sight.vitals is None else sight.vitals.rss,
            anonymous=None if sight.vitals is None else sight.vitals.anonymous,
            generator_cpu=(at.generator_cpu - self._generator_cpu) / span,
            generator_late=at.generator_late,
        )
        self._time, self._generator_cpu = now, at.generator_cpu
        self._record.seconds.append(second)
        self.finish(tallies)
        if self._record.connecting is None:
            honest = Tally(latencies={"welcome": honest.latencies["welcome"]})
        self._record.honest.merge(honest)
        return second

    def finish(self, tallies: tuple[Tally, Tally]) -> None:
        """Take in what counts whenever it happens."""
        honest, bad = tallies
        self._record.errors.merge(Tally(errors=honest.errors))
        self._record.bad.merge(bad)

    def _cores(self, now: Vitals | None) -> float | None:
        before, self._vitals = self._vitals, now
        if before is None or now is None or now.at <= before.at:
            return None
        return (now.cpu - before.cpu) / (now.at - before.at)


@dataclass(frozen=True, slots=True)
class At:
    """Where the generators are."""

    connected: int
    generator_cpu: float
    generator_late: float


def _quantile(tally: Tally, name: str, q: float) -> float | None:
    histogram = tally.latencies[name]
    return histogram.quantile(q) if len(histogram) else None
