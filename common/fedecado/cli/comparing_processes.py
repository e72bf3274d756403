"""The runs of a comparison on real worker processes, one after the other, as `fedecado up` does them."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from fedecado.cli.grid_progress import GridProgress
from fedecado.cli.up import UpSettings, federate, interruptible
from fedecado.common.errors import ConfigError
from fedecado.common.fields import settings_of as fields_of
from fedecado.common.sections import QUADRATICS
from fedecado.common.settings import Loaded, load
from fedecado.experiments.cells import Cells, Outcome, digest, settings_of
from fedecado.experiments.plan import Cell

HOW = "processes"


def run_on_processes(cells: Sequence[Cell], folder: Path, progress: GridProgress) -> list[Outcome]:
    """The outcomes of all cells; arrivals are real here, and so they differ from run to run."""
    store = Cells(folder)
    planned = [(cell, digest(settings_of(cell), HOW)) for cell in cells]
    missing = [(cell, wanted) for cell, wanted in planned if store.load(cell, wanted) is None]
    rounds = sum(settings_of(cell).rounds.max_rounds or 0 for cell, _ in missing)
    progress.planned(len(planned) - len(missing), len(missing), rounds)
    for cell, wanted in missing:
        loaded = _up_settings(cell)
        algorithm = loaded.settings.run.algorithm
        history = asyncio.run(interruptible(federate(loaded, algorithm, folder / "runs" / cell.name)))
        history.walls = [record.clock for record in history.rounds]
        store.save(cell, wanted, history, {})
        for record in history.rounds:
            progress.round(cell.name, record.round, dict(record.metrics))
        progress.finished(cell.name, history.ended)
    outcomes = (store.load(cell, wanted) for cell, wanted in planned)
    return [outcome for outcome in outcomes if outcome is not None]


def _up_settings(cell: Cell) -> Loaded[UpSettings]:
    """The cell's settings as `fedecado up` takes them; the virtual clock's own have no meaning there."""
    known = fields_of(UpSettings)
    values = {
        name: value
        for name, value in cell.values.items()
        if name in known or name.startswith("task.arguments.")
    }
    loaded = load(UpSettings, file=Path(os.devnull), flags=values, env={})
    if loaded.settings.task.factory == QUADRATICS:
        raise ConfigError("quadratics are for the simulator; leave --on processes out")
    return loaded
