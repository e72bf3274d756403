"""Progress of a run: a live bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_SECONDS = 10.0
"""Least time between two lines where there is no terminal."""


class RoundProgress:
    """Shows rounds and the latest metrics, on standard error."""

    def __init__(self, rounds: int | None, *, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._quiet, self._rounds, self._last = quiet, rounds, time.monotonic()
        self._latest: dict[str, float] = {}
        self._bar: Progress | None = None
        if console.is_terminal and not quiet:
            self._bar = Progress(
                TextColumn("round"),
                MofNCompleteColumn(),
                BarColumn(),
                TextColumn("{task.fields[metrics]}"),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task("round", total=rounds, metrics="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, number: int, metrics: Mapping[str, float]) -> None:
        """Round `number` is done."""
        self._latest.update(metrics)
        words = "  ".join(f"{name} {value:.4g}" for name, value in self._latest.items())
        if self._bar is not None:
            self._bar.update(self._task, completed=number, metrics=words)
        elif not self._quiet and time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            of = "" if self._rounds is None else f" of {self._rounds}"
            sys.stderr.write(f"round {number}{of}  {words}\n")
