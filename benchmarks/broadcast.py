"""Two and ten workers that fetch a 128 MB version at once, against a bare stream of ready-made chunks.

Timed from the hello of the last worker, which opens the first round, to the last byte at the last worker.
Encoding the version, which happens once, is part of it.
"""

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from benchmarks.fleet import Fleet
from benchmarks.harness import Contender, race, report
from benchmarks.servers import Server, bare, coordinator
from benchmarks.traffic import Traffic
from fedecado.common.layout import Layout
from fedecado.common.model_file import save_model

BYTES = 128 << 20


def run(quick: bool) -> None:
    size, repeats = (16 << 20, 3) if quick else (BYTES, 15)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model.safetensors")
        save_model(model, Layout.flat(size // 4), np.full(size // 4, 0.5, np.float32), {})
        for workers in (2, 10):
            _race(workers, size, repeats, model)


def _race(workers: int, size: int, repeats: int, model: Path) -> None:
    fresh = ("--rounds-min-clients", str(workers), "--initial", str(model))
    fetches = [
        _Fetch("bare stream", lambda: bare(workers, size // 4), workers, size),
        _Fetch("coordinator", lambda: coordinator(*fresh), workers, size),
    ]
    race([fetch.contender for fetch in fetches], repeats)
    for fetch in fetches:
        fetch.end()
        fetch.traffic.note(fetch.contender)
    contenders = [fetch.contender for fetch in fetches]
    report(f"broadcast_{workers}", contenders, workers=workers, megabytes=size >> 20)


class _Fetch:
    """A new server for every turn, as only its first round begins at a known moment."""

    def __init__(
        self, name: str, start: Callable[[], AbstractContextManager[Server]], workers: int, size: int
    ) -> None:
        self._start, self._workers, self._size = start, workers, size
        self._fleet: Fleet | None = None
        self.contender = Contender(name, self._run, self._prepare)
        self.traffic = Traffic(workers * size, size)

    def end(self) -> None:
        if self._fleet is not None:
            self._fleet.__exit__(None, None, None)
            self._fleet = None

    def _prepare(self) -> None:
        self.end()
        self._fleet = Fleet(self._start(), self._workers, self._size // 4).__enter__()
        self._fleet.connect(self._workers - 1)
        self.traffic.begin(self._fleet.server)

    def _run(self) -> None:
        assert self._fleet is not None
        self._fleet.connect(1)
        self._fleet.receive()
        self.traffic.end(self._fleet.server)
