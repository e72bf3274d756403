"""Carry a comparison out: tune, run the grid, write the report."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedecado.cli.grid_progress import GridProgress
from fedecado.common.errors import ConfigError, FedecadoError
from fedecado.common.sections import QUADRATICS
from fedecado.experiments import tuning
from fedecado.experiments.cells import Outcome, settings_of
from fedecado.experiments.labels import Distribution, distribution
from fedecado.experiments.plan import Cell, Experiment
from fedecado.experiments.report import Comparison, write_html
from fedecado.experiments.runner import run_grid
from fedecado.experiments.summary import markdown, save_parquet, summarise, unlike
from fedecado.simulator.history import plain


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for."""

    experiment: Experiment
    given: dict[str, Any]
    folder: Path
    jobs: int
    metric: str
    tune: bool
    on: str
    quiet: bool
    command: str


class Comparing:
    """One comparison in its folder."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def run(self) -> None:
        request, experiment = self._request, self._request.experiment
        choices: list[tuning.Choice] = []
        cells = list(experiment.cells(request.given))
        if request.tune:
            choices = tuning.choose(experiment, request.given, request.metric, self._tune)
            cells = tuning.tuned_cells(experiment, choices, request.given)
        outcomes = self._grid(cells, "cells", "comparing")
        rows = summarise(outcomes, request.metric, experiment.target)
        found = Comparison(
            title=experiment.title,
            command=request.command,
            outcomes=outcomes,
            rows=rows,
            metric=request.metric,
            target=experiment.target,
            choices=choices,
            labels=_labels(cells[0]),
        )
        self._write(found)

    def _tune(self, cells: list[Cell]) -> list[Outcome]:
        return self._grid(cells, "tuning", "tuning")

    def _grid(self, cells: Sequence[Cell], place: str, what: str) -> list[Outcome]:
        request = self._request
        folder = request.folder / place
        with GridProgress(what, quiet=request.quiet) as progress:
            if request.on == "processes":
                from fedecado.cli.comparing_processes import run_on_processes

                return run_on_processes(cells, folder / "processes", progress)
            return run_grid(cells, folder, request.jobs, progress)

    def _write(self, found: Comparison) -> None:
        folder, metric, target = self._request.folder, found.metric, found.target
        for problem in unlike(found.outcomes):
            sys.stderr.write(f"not alike for all algorithms: {problem}\n")
        table = markdown(found.rows, metric, target)
        (folder / "summary.md").write_text(table, encoding="utf-8")
        content = {
            "title": found.title,
            "command": found.command,
            "metric": metric,
            "rows": [{**asdict(row), "mean": row.mean, "spread": row.spread} for row in found.rows],
            "tuning": [asdict(choice) for choice in found.choices],
            "hours": sum(outcome.seconds for outcome in found.outcomes) / 3600,
        }
        (folder / "results.json").write_text(json.dumps(plain(content), indent=1) + "\n", encoding="utf-8")
        written = [folder / "results.json", folder / "summary.md"]
        for name, write in (("results.parquet", _parquet), ("report.html", write_html)):
            try:
                write(found, folder / name)
                written.append(folder / name)
            except ConfigError as error:
                sys.stderr.write(f"no {name}: {error}\n")
        sys.stdout.write(table + "\nwrote " + ", ".join(map(str, written)) + "\n")


def _parquet(found: Comparison, path: Path) -> None:
    save_parquet(found.outcomes, path)


def _labels(cell: Cell) -> tuple[str, Distribution] | None:
    """Who holds which labels in the first run; tasks without labels have no such picture."""
    settings = settings_of(cell)
    if settings.task.factory == QUADRATICS:
        return None
    try:
        task = settings.task
        found = distribution(task.factory, task.arguments, settings.fleet.clients, cell.seed)
    except FedecadoError:
        return None
    return f"{cell.setting}, seed {cell.seed}", found
