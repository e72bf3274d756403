"""The course of a run in characters."""

import math

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fedecado.cli.curves import AGAIN, KEPT, Curves, bar, sparkline
from fedecado.v1 import admin_pb2 as pb

FINITE = st.floats(-1e9, 1e9)


def closed(number: int, **metrics: float) -> pb.Round:
    found = pb.Round(number=number, window=0.5, rate=1.0 / number, loss_after=2.0 / number)
    found.evaluation.metrics.update(metrics)
    return found


def text(curves: Curves) -> str:
    console = Console(width=120, color_system=None)
    with console.capture() as captured:
        console.print(curves.picture())
    return captured.get()


@given(st.lists(FINITE, min_size=1, max_size=200), st.integers(1, 60), st.booleans())
def test_a_sparkline_has_a_block_per_stretch(values: list[float], width: int, log: bool) -> None:
    line = sparkline(values, width, log=log)
    assert len(line) == min(width, len(values)) and set(line) <= set("▁▂▃▄▅▆▇█")


def test_a_sparkline_rises_with_its_values_and_by_logarithms_where_asked() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([10.0**k for k in range(8)], 8, log=True) == "▁▂▃▄▅▆▇█"
    assert sparkline([3.0, 3.0], 8) == "▁▁"
    assert sparkline([1.0, 0.0], 8, log=True) == "█▁", "zero has no logarithm"


@given(st.floats(allow_nan=True), st.floats(allow_nan=True))
def test_a_bar_is_never_longer_than_its_room(value: float, longest: float) -> None:
    drawn = bar(value, longest, 8)
    assert len(drawn) <= 8
    assert not drawn or (value > 0 and math.isfinite(value))


def test_bars_are_told_apart_by_eighths() -> None:
    assert bar(1.0, 1.0, 4) == "████" and bar(0.5, 1.0, 4) == "██" and bar(0.28125, 1.0, 4) == "█▏"
    assert bar(1e-9, 1.0, 4) == "▏", "the shortest is still there"


def test_the_newest_rounds_are_asked_for_once_and_a_few_again() -> None:
    curves, asked = Curves(), list[int]()

    def ask(after: int) -> list[pb.Round]:
        asked.append(after)
        return [closed(number, accuracy=0.5) for number in range(after + 1, total + 1)]

    total = 2_000
    assert curves.picture() is None
    curves.update(total, ask)
    total = 2_001
    curves.update(total, ask)
    assert asked == [2_000 - KEPT, 2_000 - AGAIN] and len(curves._rounds) == KEPT
    total = 3
    curves.update(total, ask)
    assert asked[-1] == 0 and len(curves._rounds) == 3, "another run took its place"


def test_the_picture_has_a_line_for_what_was_measured() -> None:
    curves = Curves()
    rounds = [closed(1), closed(2, accuracy=0.25), closed(3, accuracy=0.75)]
    curves.update(3, lambda after: rounds)
    lines = {line.split()[0]: line.split() for line in text(curves).splitlines()}
    assert lines["accuracy"] == ["accuracy", "0.25", "▁█", "0.75"]
    assert lines["‖dx_c/dt‖"][1:] == ["1", "█▃▁", "0.3333"]
