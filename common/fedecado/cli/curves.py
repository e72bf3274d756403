"""The course of a run over its rounds, as lines of a terminal."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, final

from rich.table import Table
from rich.text import Text

from fedecado.cli.plain import clean
from fedecado.v1 import admin_pb2 as pb

KEPT: Final = 500
"""Rounds that the curves show."""
AGAIN: Final = 20
"""Rounds asked for once more: their evaluations may have come after them."""
WIDTH: Final = 48
_METRICS: Final = 3
_BARS: Final = "▁▂▃▄▅▆▇█"


@final
class Curves:
    """The newest rounds, brought up to date with few questions."""

    def __init__(self) -> None:
        self._rounds: dict[int, pb.Round] = {}

    def update(self, closed: int, ask: Callable[[int], Iterable[pb.Round]]) -> None:
        """Ask for what is new after `closed` rounds; `ask` gives the rounds after a number."""
        last = max(self._rounds, default=0)
        if closed < last:  # another run
            self._rounds.clear()
            last = 0
        first = max(0, closed - KEPT, last - AGAIN)
        self._rounds |= {found.number: found for found in ask(first)}
        for number in sorted(self._rounds)[:-KEPT]:
            del self._rounds[number]

    def picture(self) -> Table | None:
        """A line per quantity, or none before there are two rounds."""
        rounds = [self._rounds[number] for number in sorted(self._rounds)]
        if len(rounds) < 2:
            return None
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(no_wrap=True, style="green")
        table.add_column(no_wrap=True)
        for name, values, log in _quantities(rounds):
            if len(values) >= 2:
                line = sparkline(values, WIDTH, log=log)
                table.add_row(Text(name), f"{values[0]:.4g}", line, f"{values[-1]:.4g}")
        return table


def _quantities(rounds: Sequence[pb.Round]) -> Iterator[tuple[str, list[float], bool]]:
    """Name, values and whether they are shown by their logarithms."""
    names = dict.fromkeys(name for found in rounds for name in found.evaluation.metrics)
    for name in list(names)[:_METRICS]:
        values = [r.evaluation.metrics[name] for r in rounds if name in r.evaluation.metrics]
        yield clean(name), _finite(values), name == "loss"
    yield "clients' loss", _finite(r.loss_after for r in rounds if r.HasField("loss_after")), True
    yield "‖dx_c/dt‖", _finite(r.rate for r in rounds), True
    yield "window T", _finite(r.window for r in rounds), True
    lengths = (r.closed.ToMicroseconds() - r.opened.ToMicroseconds() for r in rounds)
    yield "seconds", [length / 1e6 for length in lengths], False


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def sparkline(values: Sequence[float], width: int, *, log: bool = False) -> str:
    """At most `width` blocks, each the mean of its stretch of the values."""
    if log and min(values) > 0:
        values = [math.log(value) for value in values]
    count = min(width, len(values))
    edges = [len(values) * k // count for k in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    room = (high - low) or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int((mean - low) / room * len(_BARS)))] for mean in means)


def bar(value: float, longest: float, width: int = 8) -> str:
    """A bar as long as the value is against the longest, in eighths of a character."""
    if not (0 < value < math.inf and 0 < longest < math.inf):
        return ""
    eighths = max(1, round(8 * width * min(1.0, value / longest)))
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
