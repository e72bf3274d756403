"""Progress of a grid of runs: how much is done, how long it will take, what runs now."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from fedecado.cli.plain import span
from fedecado.experiments.runner import TimeLeft

LINE_SECONDS = 15.0


class GridProgress:
    """A bar on a terminal, a line now and then elsewhere; on standard error."""

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        self._what, self._quiet = what, quiet
        self._cells = self._finished = 0
        self._left = TimeLeft()
        self._last = 0.0
        console = Console(stderr=True)
        self._bar: Progress | None = None
        if console.is_terminal and not quiet:
            columns = (TextColumn(what), BarColumn(), TextColumn("{task.fields[words]}"))
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task(what, words="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def planned(self, done: int, cells: int, rounds: int) -> None:
        self._cells, self._left = cells, TimeLeft(rounds)
        if self._bar is not None:
            self._bar.update(self._task, total=rounds)
        there = f"; {done} are there already" if done else ""
        self._say(f"{self._what}: {cells} runs to do, {rounds} rounds{there}")

    def round(self, cell: str, number: int, metrics: dict[str, float]) -> None:
        self._left.done += 1
        self._show(cell, number, metrics)

    def finished(self, cell: str, ended: str) -> None:
        self._finished += 1
        if "diverged" in ended:
            self._say(f"{cell}: {ended}")
        self._show(cell, None, {})

    def _show(self, cell: str, number: int | None, metrics: dict[str, float]) -> None:
        left = self._left.seconds()
        words = f"{self._finished} of {self._cells} runs" + (
            f", {span(left)} left" if left is not None else ""
        )
        if number is not None:
            words += f"; {cell} round {number} " + " ".join(f"{k} {v:.3g}" for k, v in metrics.items())
        if self._bar is not None:
            self._bar.update(self._task, completed=self._left.done, words=words)
        elif time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            self._say(f"{self._what}: {words}")

    def _say(self, text: str) -> None:
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.console.print(text, highlight=False)
        else:
            sys.stderr.write(f"{text}\n")
