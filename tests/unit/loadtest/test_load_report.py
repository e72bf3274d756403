"""The report: a page of its own, well formed, whatever was measured."""

import math
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.loadtest.charts import Chart, ticks
from fedecado.loadtest.limits import Limits, judge
from fedecado.loadtest.record import At, Record, Sampler
from fedecado.loadtest.report import page
from fedecado.loadtest.tally import Tally
from fedecado.loadtest.watching import Sight, Vitals, of_metrics, of_process

VALUES = st.one_of(st.none(), st.floats(0, 1e12))


@given(st.lists(st.tuples(st.floats(-1e3, 1e5), VALUES)))
def test_any_line_gives_a_drawing_inside_its_frame_or_words(points: list[tuple[float, float | None]]) -> None:
    points.sort(key=lambda point: point[0])
    drawn = Chart("Title & more", "MB", {"one": points}).svg()
    if drawn.startswith("<p"):
        assert "not measured" in drawn
        return
    root = ElementTree.fromstring(drawn)  # noqa: S314 - our own
    for line in root.iter("polyline"):
        for pair in str(line.get("points")).split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= 560 and 0 <= y <= 220


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e9))
def test_ticks_are_few_and_span_what_is_shown(low: float, span: float) -> None:
    marks = ticks(low, low + span)
    step = marks[1] - marks[0]
    assert 2 <= len(marks) <= 7
    assert marks[0] <= low + 1e-6 * step + 1e-6 and marks[-1] >= low + span - 1e-6 * step - 1e-6


class _Outside(HTMLParser):
    """Collects whatever a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href")]


@pytest.mark.parametrize("samples", [0, 1, 30])
def test_the_page_needs_nothing_else_and_escapes_what_peers_said(samples: int) -> None:
    record = Record(workers=3, bad_workers=1)
    record.connecting = 0.0
    sampler = Sampler(record)
    for number in range(samples):
        tally = Tally()
        tally.error("<script>alert(1)</script>")
        vitals = Vitals(float(number), number / 2, 10_000_000) if number % 3 else None
        sampler.add(number + 1.0, (tally, Tally()), Sight(vitals=vitals), At(3, 0.0, 0.0))
    text = page(record, judge(record, Limits()), {"machine": "a <b>"})
    outside = _Outside()
    outside.feed(text)
    assert outside.found == []
    assert "<script>" not in text and "a &lt;b&gt;" in text
    assert ("&lt;script&gt;" in text) == (samples > 0)


def test_a_process_is_measured_from_outside() -> None:
    import os

    vitals = of_process(os.getpid())
    assert vitals is not None and vitals.rss > vitals.anonymous > 1_000_000 and vitals.cpu > 0  # type: ignore[operator]  # both are there on Linux
    assert of_process(2**22 + 1) is None


def test_a_coordinator_elsewhere_is_measured_by_its_metrics() -> None:
    text = "# HELP x\nprocess_resident_memory_bytes 1.5e+08\nprocess_cpu_seconds_total 12.5\nother 3\n"
    vitals = of_metrics(text)
    assert vitals is not None and (vitals.rss, vitals.cpu) == (150_000_000, 12.5)
    assert of_metrics("process_cpu_seconds_total 12.5\n") is None
    assert not math.isnan(vitals.at)
