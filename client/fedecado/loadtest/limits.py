"""The limits a load test must keep, and whether it did: the exit code."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from fedecado.loadtest.record import Record

MEGABYTE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """None does not judge."""

    max_errors: int | None = 0
    min_updates_rate: float | None = None
    min_rounds_rate: float | None = None
    max_push_p99: float | None = None
    max_assign_p99: float | None = None
    max_rss_growth: float | None = None
    """Megabytes."""
    max_rss_slope: float | None = None
    """Megabytes per minute."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One limit. A value that could not be measured does not keep it."""

    name: str
    value: float | None
    limit: float
    kept: bool

    def plain(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, "limit": self.limit, "kept": self.kept}

    def __str__(self) -> str:
        value = "not measured" if self.value is None else f"{self.value:.4g}"
        return f"{self.name} {self.limit:g}: {value}, {'kept' if self.kept else 'MISSED'}"


def judge(record: Record, limits: Limits) -> list[Verdict]:
    """A verdict on every limit that was set."""
    growth, grows = record.rss_growth, record.rss_trend
    return [
        *_most("max-errors", float(record.error_count), limits.max_errors),
        *_least("min-updates-rate", record.updates_rate, limits.min_updates_rate),
        *_least("min-rounds-rate", record.rounds_rate, limits.min_rounds_rate),
        *_most("max-push-p99", record.quantile("push", "p99"), limits.max_push_p99),
        *_most("max-assign-p99", record.quantile("assign", "p99"), limits.max_assign_p99),
        *_most("max-rss-growth", None if growth is None else growth / MEGABYTE, limits.max_rss_growth),
        *_most("max-rss-slope", None if grows is None else grows.slope / MEGABYTE, limits.max_rss_slope),
    ]


def _most(name: str, value: float | None, limit: float | None) -> Iterator[Verdict]:
    if limit is not None:
        yield Verdict(name, value, limit, value is not None and value <= limit)


def _least(name: str, value: float | None, limit: float | None) -> Iterator[Verdict]:
    if limit is not None:
        yield Verdict(name, value, limit, value is not None and value >= limit)
