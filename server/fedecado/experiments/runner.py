"""Run the cells of a grid that are not there yet, several at a time in processes."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from fedecado.common.errors import FedecadoError
from fedecado.experiments.cells import Cells, Outcome, digest, run_cell, settings_of
from fedecado.experiments.plan import Cell
from fedecado.simulator.history import RoundRecord
from fedecado.simulator.staff import Staff


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
    wanted = {cell: digest(settings_of(cell)) for cell in map(_hashable, cells)}
    missing = [cell for cell in wanted if store.load(cell.cell, wanted[cell]) is None]
    rounds = sum(settings_of(item.cell).rounds.max_rounds or 0 for item in missing)
    watch.planned(len(cells) - len(missing), len(missing), rounds)
    if missing:
        # Big grids first fill the processes; the last seeds of all algorithms end about together.
        queue = [item.cell for item in missing]
        with Staff(min(jobs, len(queue)), _work, str(folder)) as staff:
            _supervise(staff, queue, watch)
    outcomes = [store.load(item.cell, wanted[item]) for item in wanted]
    return [outcome for outcome in outcomes if outcome is not None]


class _hashable:  # noqa: N801 - a wrapper that is nothing but its cell
    """A cell as a key: its values may hold lists."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell


def _supervise(staff: Staff, queue: list[Cell], watch: Watch) -> None:
    running: dict[Connection, Cell] = {}
    while queue or running:
        while queue and staff.idle:
            cell = queue.pop(0)
            running[staff.give(cell)] = cell
        for helper, said in staff.answers():
            cell = running[helper]
            match said:
                case RoundRecord():
                    watch.round(cell.name, said.round, dict(said.metrics))
                case FedecadoError():
                    raise said
                case ended:
                    del running[helper]
                    staff.idle.append(helper)
                    watch.finished(cell.name, str(ended))


def _work(pipe: Connection, folder: Any) -> None:
    """A helper's life: run what comes, write it down, say how it ended."""
    with suppress(ImportError):
        import torch

        # As many processes as cores train beside each other already.
        torch.set_num_threads(1)
    store, kept = Cells(Path(folder)), _Workloads()
    while True:
        cell: Cell = pipe.recv()
        try:
            settings = settings_of(cell)
            history, same = run_cell(cell, pipe.send, kept.get(settings))
            store.save(cell, digest(settings), history, same)
        except FedecadoError as error:
            pipe.send(error)
            continue
        pipe.send(history.ended)


class _Workloads:
    """The last workload: the cells of one setting and seed differ in their algorithm alone."""

    def __init__(self) -> None:
        self._key, self._workload = "", None

    def get(self, settings: Any) -> Any:
        from fedecado.simulator.assemble import make_workload

        key = settings.model_dump_json(include={"task", "fleet", "training", "simulate"})
        key += f"{settings.run.seed} {settings.run.algorithm == 'fedecado'}"
        if key != self._key or self._workload is None:
            self._workload = None  # the old one goes before the new one comes
            self._key, self._workload = key, make_workload(settings)
        return self._workload


Report = Callable[[str], None]
