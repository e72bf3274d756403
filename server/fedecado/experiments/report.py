"""The report of a comparison: one HTML file with its tables and plots inside, that needs nothing else."""

import base64
import html
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedecado.common.target import Target
from fedecado.experiments.cells import Outcome
from fedecado.experiments.labels import Distribution, bars
from fedecado.experiments.statistics import AXES, LAST, LOWER_IS_BETTER, curve
from fedecado.experiments.summary import Row, cells_of, headings, unlike
from fedecado.experiments.tuning import Choice
from fedecado.simulator.drawing import pyplot, tidy

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 } td, th { padding: .25rem .8rem; text-align: right }
td:first-child, th:first-child { text-align: left } tr { border-bottom: 1px solid #ddd }
img { max-width: 100% } code, pre { background: #f4f4f4; padding: .1rem .3rem } .warn { color: #a00 }
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that a report shows."""

    title: str
    command: str
    outcomes: Sequence[Outcome]
    rows: Sequence[Row]
    metric: str
    target: Target | None
    choices: Sequence[Choice] = ()
    labels: tuple[str, Distribution] | None = None


def write_html(found: Comparison, path: Path) -> None:
    """The whole report."""
    parts = [f"<h1>{html.escape(found.title)}</h1>", f"<pre>{html.escape(found.command)}</pre>"]
    parts += [f'<p class="warn">Not alike: {html.escape(line)}</p>' for line in unlike(found.outcomes)]
    parts.append(_about(found))
    for setting in dict.fromkeys(row.setting for row in found.rows):
        parts.append(f"<h2>{html.escape(setting)}</h2>")
        parts.append(_table([row for row in found.rows if row.setting == setting], found))
        own = [outcome for outcome in found.outcomes if outcome.cell.setting == setting]
        parts += [_image(_curves(own, metric), f"{metric} in {setting}") for metric in _metrics(own)]
        parts += [f"<p>{html.escape(line)}</p>" for line in _ends(own)]
    parts += _tuning(found.choices)
    if found.labels is not None:
        name, distribution = found.labels
        parts.append(f"<h2>Labels of the clients: {html.escape(name)}</h2>")
        parts.append(_image(bars(distribution, ""), "labels by client"))
    page = f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(found.title)}</title>"
    path.write_text(f"{page}<style>{_STYLE}</style>{''.join(parts)}</html>\n", encoding="utf-8")


def _about(found: Comparison) -> str:
    seeds = sorted({outcome.cell.seed for outcome in found.outcomes})
    hours = sum(outcome.seconds for outcome in found.outcomes) / 3600
    return (
        f"<p>{len(found.outcomes)} runs with seeds {', '.join(map(str, seeds))}; {hours:.2f} hours in all. "
        "Within a setting and seed all algorithms have the same partition, initial model and arrivals. "
        f"A score is the mean of the last {LAST} evaluations; p is of a paired t-test over the seeds against "
        "the best, not corrected for the number of tests. Matched after: rounds until the first algorithm "
        "scores what this one ended with, the median over seeds. Plots show the mean and one standard "
        "deviation.</p>"
    )


def _table(rows: Sequence[Row], found: Comparison) -> str:
    target = (
        "rounds to target"
        if found.target is None
        else f"rounds to {found.target.metric} {found.target.value:g}"
    )
    head = "<th>" + "".join(f"<th>{html.escape(name)}" for name in headings(rows, found.metric, target))
    body = ""
    for row in rows:
        name, mean, *rest = cells_of(row, bold="{}")
        shown = f"<b>{mean}</b>" if row.best else mean
        body += f"<tr><td>{html.escape(name)}<td>{shown}" + "".join(
            f"<td>{html.escape(cell)}" for cell in rest
        )
    return f"<table><tr>{head}{body}</table>"


def _tuning(choices: Sequence[Choice]) -> list[str]:
    if not choices:
        return []
    rows = "".join(
        f"<tr><td>{html.escape(c.setting)}<td>{html.escape(c.algorithm)}<td>{c.score:.4f}"
        f"<td>{len(c.tried)}<td><code>{html.escape(json.dumps(dict(c.point)))}</code>"
        for c in choices
    )
    head = "<tr><th>setting<th>algorithm<th>validation score<th>points tried<th>best point"
    return ["<h2>Tuning</h2>", f"<table>{head}{rows}</table>"]


def _ends(outcomes: Sequence[Outcome]) -> list[str]:
    return [f"{o.cell.algorithm}, seed {o.cell.seed}, {o.ended}" for o in outcomes if o.diverged]


def _metrics(outcomes: Sequence[Outcome]) -> list[str]:
    return list(dict.fromkeys(name for o in outcomes for r in o.rounds for name in r.metrics))


def _curves(outcomes: Sequence[Outcome], metric: str) -> Any:
    """A plot per axis: rounds, virtual time, wall time, bytes."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.cell.algorithm, []).append(outcome)
    figure, axes = pyplot().subplots(
        1, len(AXES), figsize=(5 * len(AXES), 4), layout="constrained", sharey=True
    )
    for axis, (name, place) in zip(axes, AXES.items(), strict=True):
        for number, (algorithm, own) in enumerate(groups.items()):
            line = curve(own, metric, place)
            if line is None:
                continue
            # Colours come again after ten lines.
            axis.plot(line.x, line.mean, "-" if number < 10 else "--", label=algorithm)
            axis.fill_between(line.x, line.mean - line.spread, line.mean + line.spread, alpha=0.15)
        axis.set(xlabel=name)
        tidy(axis)
        if metric in LOWER_IS_BETTER:
            axis.set_yscale("log")
    axes[0].set_ylabel(metric)
    axes[-1].legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _svg(figure: Any) -> bytes:
    written = io.BytesIO()
    # Text stays text: smaller files that can be searched, in the reader's own font.
    with pyplot().rc_context({"svg.fonttype": "none"}):
        figure.savefig(written, format="svg")
    pyplot().close(figure)
    return written.getvalue()


def _image(figure: Any, text: str) -> str:
    # As data of an image rather than inline: ids of several drawings would clash in one document.
    data = base64.b64encode(_svg(figure)).decode()
    return f'<img alt="{html.escape(text)}" src="data:image/svg+xml;base64,{data}">'
