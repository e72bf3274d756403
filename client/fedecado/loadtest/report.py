"""The report of a load test: one HTML file that needs nothing else."""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, Final

from fedecado.loadtest.charts import Chart, Points
from fedecado.loadtest.limits import MEGABYTE, Verdict
from fedecado.loadtest.record import QUANTILES, Record, Second

_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1f2937;--dim:#6b7280;--line:#e5e7eb;--bg:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e5e7eb;--dim:#9ca3af;--line:#374151;--bg:#111827}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--bg);
max-width:1180px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.05rem;margin:0 0 .2rem}
table{border-collapse:collapse;margin:.5rem 0 1.5rem}
td,th{padding:.2rem .9rem .2rem 0;text-align:right;border-bottom:1px solid var(--line)}
td:first-child,th:first-child{text-align:left}.kept{color:#059669}.missed{color:#dc2626;font-weight:600}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:1.5rem}
svg{width:100%;height:auto}svg text{font-size:11px;fill:var(--dim)}.grid{stroke:var(--line)}
.lines polyline{fill:none;stroke-width:1.5}.dim,.none{color:var(--dim)}
"""


def page(record: Record, verdicts: Sequence[Verdict], facts: dict[str, Any]) -> str:
    """The whole file; `facts` are said under the title."""
    said = " · ".join(f"{escape(str(name))} {escape(str(value))}" for name, value in facts.items())
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Load test</title>"
        f"<meta name=viewport content='width=device-width'><style>{_STYLE}</style>"
        f"<h1>Load test: {record.workers} workers, {record.duration:.0f} s, {escape(record.ended)}</h1>"
        f"<p class=dim>{said}</p>{_verdicts(verdicts)}{_figures(record)}{_latencies(record)}{_errors(record)}"
        f"<div class=charts>{''.join(_charts(record))}</div></html>\n"
    )


def figures(record: Record) -> Iterator[tuple[str, str]]:
    """The main results as words, for the page and for the terminal."""
    summary = record.summary()
    yield "updates/s", f"{record.updates_rate:.1f}"
    if record.rounds_rate is not None:
        yield "rounds/s", f"{record.rounds_rate:.3g}"
    yield "to workers", f"{summary['bytes_to_workers_per_second'] / MEGABYTE:.1f} MB/s"
    yield "from workers", f"{summary['bytes_from_workers_per_second'] / MEGABYTE:.1f} MB/s"
    yield "all connected after", f"{record.connecting or 0.0:.1f} s"
    if summary["coordinator_cores"] is not None:
        yield "coordinator CPU", f"{summary['coordinator_cores']:.2f} cores"
    if record.rss_most is not None:
        yield "coordinator memory", f"{record.rss_most / MEGABYTE:.0f} MB at most{_grown(record)}"
    if summary["generator_cores"] is not None:
        yield "generators' CPU", f"{summary['generator_cores']:.2f} cores"
    if record.late:
        words = "the generators were late, and so are the latencies; use more --processes or another machine"
        yield "WARNING", words
    yield "errors", str(record.error_count)


def _grown(record: Record) -> str:
    growth, grows = record.rss_growth, record.rss_trend
    text = "" if growth is None else f", {growth / MEGABYTE:+.1f} MB from second to last quarter"
    if grows is not None:
        text += f", {grows.slope / MEGABYTE:+.2f} ± {grows.error / MEGABYTE:.2f} MB per minute"
    return text


def seconds(value: float | None) -> str:
    """A latency."""
    return "–" if value is None else f"{1000 * value:.1f} ms" if value < 1 else f"{value:.2f} s"


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    rows = "".join(f"<li class={'kept' if v.kept else 'missed'}>{escape(str(v))}</li>" for v in verdicts)
    return f"<ul>{rows}</ul>"


def _figures(record: Record) -> str:
    rows = "".join(f"<tr><td>{escape(name)}<td>{escape(text)}" for name, text in figures(record))
    return f"<table>{rows}</table>"


def _latencies(record: Record) -> str:
    head = "".join(f"<th>{name}" for name in QUANTILES)
    rows = "".join(
        f"<tr><td>{name}"
        + "".join(f"<td>{seconds(record.quantile(name, q))}" for q in QUANTILES)
        + f"<td>{len(histogram)}"
        for name, histogram in record.honest.latencies.items()
    )
    return f"<table><tr><th>latency{head}<th>count{rows}</table>"


def _errors(record: Record) -> str:
    found = record.summary()["errors"]
    if not found:
        return ""
    rows = "".join(f"<tr><td>{escape(kind)}<td>{count}" for kind, count in found.items())
    return f"<table><tr><th>error<th>count{rows}</table>"


def _charts(record: Record) -> Iterator[str]:
    start = record.connecting or 0.0

    def line(get: Callable[[Second], float | None]) -> Points:
        return [(second.at - start, get(second)) for second in record.seconds]

    for chart in (
        Chart("Updates accepted", "per second", {"updates": line(lambda s: s.updates)}),
        Chart("Rounds closed", "", {"rounds": line(lambda s: s.rounds)}),
        Chart(
            "Push: from the update's first byte to its acknowledgement",
            "seconds",
            {"p50": line(lambda s: s.push_p50), "p99": line(lambda s: s.push_p99)},
        ),
        Chart("Assign: until a task is whole", "seconds, p99", {"p99": line(lambda s: s.assign_p99)}),
        Chart(
            "Coordinator memory",
            "MB",
            {
                "resident": line(lambda s: None if s.rss is None else s.rss / MEGABYTE),
                "not backed by files": line(
                    lambda s: None if s.anonymous is None else s.anonymous / MEGABYTE
                ),
            },
        ),
        Chart(
            "Processor time",
            "cores",
            {"coordinator": line(lambda s: s.cpu), "generators": line(lambda s: s.generator_cpu)},
        ),
        Chart(
            "Traffic",
            "MB/s",
            {
                "to workers": line(lambda s: s.sent / MEGABYTE),
                "from workers": line(lambda s: s.received / MEGABYTE),
            },
        ),
        Chart("Workers connected", "", {"connected": line(lambda s: s.connected)}),
        Chart("Errors", "per sample", {"errors": line(lambda s: s.errors)}),
    ):
        unit = f" <span class=dim>{escape(chart.unit)}</span>" if chart.unit else ""
        yield f"<section><h2>{escape(chart.title)}{unit}</h2>{chart.legend()}{chart.svg()}</section>"
