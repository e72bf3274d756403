"""A comparison in rows: what each algorithm reached in each setting, and how sure that is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedecado.common.errors import ConfigError
from fedecado.common.target import Target
from fedecado.experiments.cells import Outcome
from fedecado.experiments.statistics import (
    LOWER_IS_BETTER,
    Paired,
    final,
    paired,
    rounds_to_match,
    rounds_to_target,
)

SURE = 0.05
"""A difference is called one from here on; p-values are of single tests, not corrected for their number."""


@dataclass(frozen=True, slots=True)
class Row:
    """One algorithm in one setting."""

    setting: str
    algorithm: str
    finals: tuple[float, ...]
    """Final scores by seed; NaN where the run diverged."""
    rounds_to_target: float | None
    seconds: float
    best: bool
    against_best: Paired | None
    """Its distance from the best one; None for the best itself."""
    leader: str
    """The first algorithm of the experiment."""
    matched_after: float | None
    """Rounds after which the leader scores what this one ends with."""

    @property
    def mean(self) -> float:
        return float(np.mean(self.finals)) if self.finals else math.nan

    @property
    def spread(self) -> float:
        return float(np.std(self.finals, ddof=1)) if len(self.finals) > 1 else 0.0


def summarise(outcomes: Sequence[Outcome], metric: str, target: Target | None) -> list[Row]:
    """Rows by setting, in the order of the outcomes."""
    groups: dict[str, dict[str, list[Outcome]]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.cell.setting, {}).setdefault(outcome.cell.algorithm, []).append(outcome)
    rows: list[Row] = []
    for setting, by_algorithm in groups.items():
        finals = {name: [final(o, metric) for o in own] for name, own in by_algorithm.items()}
        best = _best(finals, lower=metric in LOWER_IS_BETTER)
        leader = next(iter(by_algorithm))
        for name, own in by_algorithm.items():
            rows.append(
                Row(
                    setting=setting,
                    algorithm=name,
                    finals=tuple(finals[name]),
                    rounds_to_target=None if target is None else rounds_to_target(own, target),
                    seconds=sum(outcome.seconds for outcome in own),
                    best=name == best,
                    against_best=None if best is None or name == best else paired(finals[name], finals[best]),
                    leader=leader,
                    matched_after=rounds_to_match(by_algorithm[leader], own, metric),
                )
            )
    return rows


def unlike(outcomes: Sequence[Outcome]) -> list[str]:
    """What was not the same for all algorithms of a setting and seed, though it should have been."""
    seen: dict[tuple[str, int, str], set[str]] = {}
    for outcome in outcomes:
        for what, value in outcome.same.items():
            # A run that diverges ends early, and a failed task is asked again: its arrivals differ.
            if what != "arrivals" or not outcome.diverged:
                seen.setdefault((outcome.cell.setting, outcome.cell.seed, what), set()).add(value)
    return [
        f"{setting}, seed {seed}: {what}" for (setting, seed, what), values in seen.items() if len(values) > 1
    ]


def markdown(rows: Sequence[Row], metric: str, target: Target | None) -> str:
    """A table per setting; the best is bold, with * those that a paired test cannot tell from it."""
    parts = []
    for setting in dict.fromkeys(row.setting for row in rows):
        own = [row for row in rows if row.setting == setting]
        head = [
            setting,
            *headings(own, metric, "rounds to target" if target is None else f"rounds to {target.value:g}"),
        ]
        lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        lines += ["| " + " | ".join(cells_of(row, bold="**{}**")) + " |" for row in own]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def headings(rows: Sequence[Row], metric: str, to_target: str) -> list[str]:
    """What `cells_of` has, behind the name."""
    return [metric, "spread", "against the best", to_target, f"matched by {rows[0].leader} after"]


def cells_of(row: Row, bold: str) -> list[str]:
    """A row in words."""
    mean = "diverged" if math.isnan(row.mean) else f"{row.mean:.4f}"
    return [
        f"`{row.algorithm}`" if "*" in bold else row.algorithm,
        bold.format(mean) if row.best else mean,
        f"{row.spread:.4f}" if len(row.finals) > 1 else "",
        _gap(row),
        _rounds_or_never(row.rounds_to_target),
        "" if row.algorithm == row.leader or math.isnan(row.mean) else _rounds_or_never(row.matched_after),
    ]


def _rounds_or_never(rounds: float | None) -> str:
    return "never" if rounds is None else f"{rounds:g}"


def _gap(row: Row) -> str:
    if row.best:
        return "best"
    if row.against_best is None:
        return ""
    gap = f"{row.against_best.difference:+.4f}"
    p = row.against_best.p
    return gap if p is None else f"{gap} (p = {p:.2g}{'' if p < SURE else ', not sure'})"


def save_parquet(outcomes: Sequence[Outcome], path: Path) -> None:
    """Every round of every run, a line each."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ConfigError("Parquet needs pyarrow; install fedecado[report]") from error
    rows = [row for outcome in outcomes for row in _rounds(outcome)]
    names = dict.fromkeys(name for row in rows for name in row)
    pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), path)


def _rounds(outcome: Outcome) -> list[dict[str, Any]]:
    cell = outcome.cell
    return [
        {
            "setting": cell.setting,
            "algorithm": cell.algorithm,
            "seed": cell.seed,
            "round": record.round,
            "clock": record.clock,
            "wall": wall,
            "bytes": record.traffic,
            "updates": record.updates,
            "staleness": record.staleness,
            **{f"metric.{name}": value for name, value in record.metrics.items()},
        }
        for record, wall in zip(outcome.rounds, outcome.walls, strict=False)
    ]


def _best(finals: dict[str, list[float]], *, lower: bool) -> str | None:
    means = {name: float(np.mean(values)) for name, values in finals.items()}
    finite = {name: mean for name, mean in means.items() if math.isfinite(mean)}
    if not finite:
        return None
    return min(finite, key=finite.__getitem__) if lower else max(finite, key=finite.__getitem__)
