"""Updates in compact formats: bytes, time, and what rounding costs in accuracy.

The time is that of rounding, sending and decoding, to the acknowledgement, on this machine alone and behind a
line of 100 Mbit/s. The accuracy is that of simulated runs with the same seeds: digits, and quadratics with a
known optimum.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.fleet import Fleet
from benchmarks.harness import BLAS, Contender, race, report, save
from benchmarks.servers import Server, coordinator
from benchmarks.slow_line import slowed
from fedecado.common import formats
from fedecado.common.names import Compact, Format
from fedecado.common.packed import NUMBERS
from fedecado.common.settings import load
from fedecado.common.wire import encode
from fedecado.simulator.assemble import SimulateSettings, make_simulation, make_workload
from fedecado.simulator.uplink import Uplink

FORMATS: tuple[Format, ...] = get_args(Format)
RATE = 100e6 / 8
SERVER = ("--rounds", "1000000", "--algorithm", "fedavg")
METRICS = {"digits": "accuracy", "quadratics": "distance"}
ROUNDS = {"digits": 40, "quadratics": 150}


def run(quick: bool) -> None:
    parameters, repeats = (1 << 20, 2) if quick else (8 << 20, 7)
    for name, rate in (("formats_loopback", None), ("formats_100mbit", RATE)):
        _uploads(name, rate, parameters, repeats)
    with BLAS.limit(limits=1):
        _accuracy(seeds=1 if quick else 3, share=0.1 if quick else 1.0)


def _uploads(name: str, rate: float | None, parameters: int, repeats: int) -> None:
    with ExitStack() as stack:
        uploads = []
        for format in FORMATS:
            fleet = stack.enter_context(Fleet(_server(rate), 1, parameters))
            fleet.join(model=True)
            uploads.append(_Upload(format, fleet))
        race([upload.contender for upload in uploads], repeats)
    for upload in uploads:
        upload.note()
    report(name, [upload.contender for upload in uploads], parameters=parameters)


@contextmanager
def _server(rate: float | None) -> Iterator[Server]:
    with coordinator(*SERVER) as server:
        behind: AbstractContextManager[Server] | None = None if rate is None else slowed(server, rate)
        if behind is None:
            yield server
        else:
            with behind as address:
                yield address


class _Upload:
    """One worker that sends in one format; training is a small random step."""

    def __init__(self, format: Format, fleet: Fleet) -> None:
        self._format, self._fleet = format, fleet
        draw = np.random.default_rng(0)
        self._start = np.zeros(fleet.layout.size, np.float32)
        self._end = (1e-3 * draw.standard_normal(fleet.layout.size, np.float32)).astype(np.float32)
        self._owed = np.zeros_like(self._start)
        self._rounding: list[float] = []
        self._computed: list[float] = []
        self._bytes = 0
        fleet.receive()
        self.contender = Contender(format, self._run, self._begin, self._settle)

    def note(self) -> None:
        self.contender.notes = {
            "MB": f"{self._bytes / 1e6:.1f}",
            "rounding": f"{1e3 * float(np.median(self._rounding)):.0f} ms",
            "coordinator computes": f"{1e3 * float(np.median(self._computed)):.0f} ms",
        }

    def _begin(self) -> None:
        self._before = self._fleet.server.cpu

    def _settle(self) -> None:
        self._computed.append(self._fleet.server.cpu - self._before)
        self._fleet.receive()

    def _run(self) -> None:
        began, sent = time.perf_counter(), self._end
        if self._format != "full":
            sent = self._packed(self._format)
        self._rounding.append(time.perf_counter() - began)
        self._bytes = sent.nbytes
        self._fleet.deliver(encode(sent), format=NUMBERS[self._format], state_bytes=sent.nbytes)

    def _packed(self, format: Compact) -> Any:
        return formats.encode(format, self._fleet.layout, self._start, self._end, self._owed).payload


def _accuracy(seeds: int, share: float) -> None:
    """Runs of all formats with the same seeds; the differences to full precision are of the same seed."""
    rows = []
    for task, metric in METRICS.items():
        reached: dict[tuple[str, Format, bool], list[float]] = {}
        for seed in range(seeds):
            flags = {"task.factory": task, "run.seed": seed, "training.epochs": 2, "training.loss_samples": 0}
            rounds = {"rounds.max_rounds": round(share * ROUNDS[task]), "rounds.evaluate_every": 1000}
            settings = load(
                SimulateSettings, file=Path("/dev/null"), flags={**flags, **rounds}, env={}
            ).settings
            workload = make_workload(settings)
            for algorithm, format, kept in product(("fedecado", "fedavg"), FORMATS, (True, False)):
                if format == "full" and not kept:
                    continue  # there is nothing to keep
                run = settings.run.model_copy(update={"algorithm": algorithm})
                simulation = make_simulation(settings.model_copy(update={"run": run}), workload)
                simulation.uplink = Uplink(format, workload.layout, feedback=kept)
                found = reached.setdefault((algorithm, format, kept), [])
                found.append(float(simulation.run().metrics()[metric]))
        rows += [
            {"task": task, "algorithm": algorithm, "format": format, "feedback": kept, metric: values}
            for (algorithm, format, kept), values in reached.items()
        ]
    _show(rows)
    save("formats_accuracy", {"runs": rows, "rounds": ROUNDS, "share": share})


def _show(rows: list[dict[str, Any]]) -> None:
    table = Table(title="formats_accuracy: of the last round; mean over seeds")
    for column in ("task", "algorithm", "format", "feedback", "", "difference to full"):
        table.add_column(column)
    full: dict[tuple[str, str], Any] = {}
    for row in rows:
        metric, key = METRICS[row["task"]], (row["task"], row["algorithm"])
        values = np.asarray(row[metric])
        full.setdefault(key, values)
        change = values - full[key]
        table.add_row(
            *(*key, row["format"], "yes" if row["feedback"] else "no"),
            f"{metric} {values.mean():.4g}",
            f"{change.mean():+.2g} ({change.min():+.2g} to {change.max():+.2g})",
        )
    Console(width=120).print(table)
