"""Run the cells of a grid that are not there yet: here, or several at a time in processes."""

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from fedecado.common.errors import FedecadoError
from fedecado.experiments.cells import Cells, Outcome, digest, run_cell, settings_of
from fedecado.experiments.plan import Cell
from fedecado.simulator.assemble import SimulateSettings, make_workload
from fedecado.simulator.history import RoundRecord
from fedecado.simulator.staff import Staff
from fedecado.simulator.workload import Workload


class Watch(Protocol):
    """Is told how a grid comes along."""

    def planned(self, done: int, cells: int, rounds: int) -> None:
        """So many cells were there already; so many are to be run, with so many rounds in all."""

    def round(self, cell: str, number: int, metrics: dict[str, float]) -> None:
        """A cell closed a round."""

    def finished(self, cell: str, ended: str) -> None:
        """A cell is done."""


@dataclass(slots=True)
class TimeLeft:
    """An estimate from the rounds done so far; rounds cost about the same within a grid."""

    rounds: int = 0
    done: int = 0
    began: float = field(default_factory=time.monotonic)

    def seconds(self) -> float | None:
        if not self.done:
            return None
        return (time.monotonic() - self.began) / self.done * max(0, self.rounds - self.done)


def run_grid(cells: Sequence[Cell], folder: Path, jobs: int, watch: Watch) -> list[Outcome]:
    """The outcomes of all cells in their order; those that are on disk are not run again."""
    store = Cells(folder)
    planned = [(cell, settings_of(cell)) for cell in cells]
    missing = [(cell, own) for cell, own in planned if store.load(cell, digest(own)) is None]
    watch.planned(
        len(cells) - len(missing), len(missing), sum(own.rounds.max_rounds or 0 for _, own in missing)
    )
    if jobs == 1:
        _run_here([cell for cell, _ in missing], store, watch)
    elif missing:
        with Staff(min(jobs, len(missing)), _work, str(folder)) as staff:
            _supervise(staff, deque(cell for cell, _ in missing), watch)
    outcomes = (store.load(cell, digest(own)) for cell, own in planned)
    return [outcome for outcome in outcomes if outcome is not None]


def _run_here(cells: Sequence[Cell], store: Cells, watch: Watch) -> None:
    kept = _Workloads()
    for cell in cells:
        watch.finished(cell.name, _run(cell, store, kept, partial(_tell, watch, cell.name)))


def _tell(watch: Watch, name: str, record: RoundRecord) -> None:
    watch.round(name, record.round, dict(record.metrics))


def _supervise(staff: Staff, queue: deque[Cell], watch: Watch) -> None:
    running: dict[Connection, Cell] = {}
    while queue or running:
        while queue and staff.idle:
            cell = queue.popleft()
            running[staff.give(cell)] = cell
        for helper, said in staff.answers():
            cell = running[helper]
            match said:
                case RoundRecord():
                    _tell(watch, cell.name, said)
                case FedecadoError():
                    raise said
                case ended:
                    del running[helper]
                    staff.idle.append(helper)
                    watch.finished(cell.name, str(ended))


def _work(pipe: Connection, folder: Any) -> None:
    """A helper's life: run what comes, write it down, say how it ended."""
    store, kept = Cells(Path(folder)), _Workloads()
    while True:
        cell: Cell = pipe.recv()
        try:
            ended = _run(cell, store, kept, pipe.send)
        except FedecadoError as error:
            pipe.send(error)
            continue
        pipe.send(ended)


def _run(cell: Cell, store: Cells, kept: "_Workloads", watch: Callable[[RoundRecord], None]) -> str:
    settings = settings_of(cell)
    workload = kept.get(settings)
    if "torch" in sys.modules:
        # As many runs as there are cores go on beside each other; threads would only get in their way.
        sys.modules["torch"].set_num_threads(1)
    history, same = run_cell(cell, watch, workload)
    store.save(cell, digest(settings), history, same)
    return history.ended


class _Workloads:
    """The last workload: the cells of one setting and seed differ in their algorithm alone."""

    def __init__(self) -> None:
        self._key = ""
        self._workload: Workload | None = None

    def get(self, settings: SimulateSettings) -> Workload:
        key = settings.model_dump_json(include={"task", "fleet", "training", "simulate"})
        key += f"{settings.run.seed} {settings.run.algorithm == 'fedecado'}"
        if key != self._key or self._workload is None:
            self._workload = None  # the old one goes before the new one comes
            self._key, self._workload = key, make_workload(settings)
        return self._workload
