"""One run of a grid: its settings, its result, and the file that remembers it."""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedecado.common.errors import ConfigError, FedecadoError
from fedecado.common.settings import load
from fedecado.experiments.plan import Cell
from fedecado.simulator.assemble import SimulateSettings, make_simulation, make_workload
from fedecado.simulator.history import History, RoundRecord, plain
from fedecado.simulator.workload import Workload

Watch = Callable[[RoundRecord], None]

FORMAT = 1
"""Of the files; a result of another format is computed again."""
DIVERGED = "diverged"
# Where results go does not change them.
_IRRELEVANT = {"run": {"name", "directory"}, "simulate": {"results", "plot", "record", "processes"}}


def settings_of(cell: Cell) -> SimulateSettings:
    """The settings of a cell, judged as if they had been given on the command line."""
    try:
        return load(SimulateSettings, file=Path(os.devnull), flags=cell.values, env={}).settings
    except ConfigError as error:
        raise ConfigError(f"{cell.name}: {error}") from error


def digest(settings: SimulateSettings, how: str = "simulator") -> str:
    """Equal digests mean equal runs.

    Knobs of the circuit say nothing about other algorithms: trying one does not make their runs old.
    """
    content = {"format": FORMAT, "how": how, **settings.model_dump(mode="json", exclude=_IRRELEVANT)}
    if settings.run.algorithm != "fedecado":
        del content["solver"]
    return hashlib.sha256(json.dumps(plain(content), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished cell as its file holds it."""

    cell: Cell
    digest: str
    ended: str
    seconds: float
    rounds: list[RoundRecord]
    walls: list[float]
    same: dict[str, str]
    """Digests of what must be alike for all algorithms: partition, initial state, arrivals."""

    @property
    def diverged(self) -> bool:
        return self.ended.startswith(DIVERGED)


class Cells:
    """The files of a grid in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, cell: Cell, wanted: str) -> Outcome | None:
        """The outcome of a cell, if it is there and was computed with the settings of today."""
        try:
            content = json.loads(self._path(cell).read_text(encoding="utf-8"))
            if content["digest"] != wanted:
                return None
            return Outcome(
                cell=cell,
                digest=wanted,
                ended=content["ended"],
                seconds=content["seconds"],
                rounds=[_record(values) for values in content["history"]],
                walls=content["walls"],
                same=content["same"],
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None  # not there, or damaged: it is computed again

    def save(self, cell: Cell, wanted: str, history: History, same: dict[str, str]) -> None:
        """Write aside and rename, so that a file that is there is whole."""
        self._folder.mkdir(parents=True, exist_ok=True)
        content = json.loads(history.to_json()) | {"digest": wanted, "cell": cell.name, "same": same}
        path = self._path(cell)
        aside = path.with_suffix(".part")
        aside.write_text(json.dumps(content), encoding="utf-8")
        aside.replace(path)

    def _path(self, cell: Cell) -> Path:
        return self._folder / f"{cell.name}.json"


def run_cell(cell: Cell, watch: Watch, workload: Workload | None = None) -> tuple[History, dict[str, str]]:
    """Run a cell on the simulator.

    A run that diverges is an outcome, too: it ends early, and its history says why.
    """
    settings = settings_of(cell)
    workload = workload or make_workload(settings)
    simulation = make_simulation(settings, workload, watch=watch)
    same = {
        "partition": _short(json.dumps(workload.samples).encode()),
        "initial": _short(workload.initial().tobytes()),
    }
    try:
        history = simulation.run()
    except FedecadoError as error:
        history = simulation.history
        history.ended = f"{DIVERGED}: {error}"
    same["arrivals"] = _short(repr(simulation.trace.events).encode())
    history.settings = settings.model_dump(mode="json")
    return history, same


def _record(values: dict[str, Any]) -> RoundRecord:
    numbers = ("rate", "loss_before", "loss_after", "staleness")
    readable = {name: float("nan") if values[name] is None else float(values[name]) for name in numbers}
    return RoundRecord(**{**values, **readable})


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
