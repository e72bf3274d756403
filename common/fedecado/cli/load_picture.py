"""A load test as people see it: live on a terminal, a line now and then elsewhere, and its result."""

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedecado.cli import picture
from fedecado.loadtest.limits import MEGABYTE, Verdict
from fedecado.loadtest.record import QUANTILES, Record, Second
from fedecado.loadtest.report import figures, seconds

LINE_SECONDS = 10.0
"""Least time between two lines where there is no terminal."""


class LoadProgress:
    """Shows the newest sample on standard error."""

    def __init__(self, duration: float, *, quiet: bool = False) -> None:
        self._duration, self._quiet, self._last = duration, quiet, time.monotonic()
        console = Console(stderr=True)
        self._live: Live | None = None
        if console.is_terminal and not quiet:
            self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, record: Record, second: Second) -> None:
        """A sample is there."""
        if self._live is not None:
            self._live.update(self._picture(record, second), refresh=True)
        elif not self._quiet and time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            words = "  ".join(f"{name} {text}" for name, text in self._facts(record, second))
            sys.stderr.write(f"{words}\n")

    def _facts(self, record: Record, second: Second) -> list[tuple[str, str]]:
        if record.connecting is None:
            phase = "connecting"
        else:
            phase = f"{second.at - record.connecting:.0f} of {self._duration:.0f} s"
        facts = [
            ("load test", phase),
            ("connected", f"{second.connected} of {record.workers}"),
            ("updates/s", f"{second.updates:.0f}"),
            ("push p99", seconds(second.push_p99)),
            ("traffic", f"{(second.sent + second.received) / MEGABYTE:.1f} MB/s"),
            ("errors", str(record.errors.errors.total())),
        ]
        if second.rounds is not None:
            facts.insert(2, ("rounds", str(second.rounds)))
        if second.rss is not None and second.cpu is not None:
            facts.append(("coordinator", f"{second.cpu:.2f} cores, {second.rss / MEGABYTE:.0f} MB"))
        return facts

    def _picture(self, record: Record, second: Second) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold")
        for name, text in self._facts(record, second):
            table.add_row(name, text)
        return table


def print_result(record: Record, verdicts: Sequence[Verdict]) -> None:
    """The result on standard output."""
    table = Table.grid(padding=(0, 2))
    for name, text in figures(record):
        table.add_row(name, text)
    latencies = Table()
    for column in ("latency", *QUANTILES, "count"):
        latencies.add_column(column, justify="left" if column == "latency" else "right")
    for name, histogram in record.honest.latencies.items():
        row = [seconds(record.quantile(name, q)) for q in QUANTILES]
        latencies.add_row(name, *row, str(len(histogram)))
    errors = [Text(f"error: {kind}: {count}") for kind, count in record.summary()["errors"].items()]
    limits = [Text(f"limit {verdict}") for verdict in verdicts]
    head = f"{record.workers} workers, {record.duration:.0f} s, {record.ended}"
    picture.show(Group(Text(head), table, latencies, *errors, *limits))
