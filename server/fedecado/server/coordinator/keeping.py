"""Keeping the last and the best model in files while the run goes on."""

import time
from pathlib import Path
from typing import Final, final

from fedecado.common.layout import Vector
from fedecado.server.coordinator.beside import Beside
from fedecado.server.coordinator.facts import Facts
from fedecado.server.coordinator.models import ModelFiles

SAVE_SECONDS: Final = 10.0
"""Least time between two writes of the last model while rounds go on."""


@final
class Keeping:
    """Writes models in the thread for files."""

    def __init__(self, run: Facts, files: ModelFiles, beside: Beside) -> None:
        self._run, self._files, self._beside = run, files, beside
        self._saved = time.monotonic()

    def published(self, version: int, state: Vector) -> None:
        """A new version is there; now and then it is written down."""
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self._saved = time.monotonic()
            self.save("last", version, state)

    def save(self, which: str, version: int, state: Vector) -> None:
        """Write `last` or `best` while other things go on."""
        self._beside.spawn(self._write(which, version, state))

    async def save_last(self) -> Path | None:
        """Write the newest version; none when there is no model yet."""
        if (federation := self._run.federation) is None:
            return None
        await self._write("last", federation.version, federation.central)
        return self._files.path("last")

    async def _write(self, which: str, version: int, state: Vector) -> None:
        if (layout := self._run.layout) is None:
            return
        measured = self._run.journal.measurement(version)
        metrics = {} if measured is None else measured.metrics
        seconds, saved = await self._beside.files(self._files.save, which, layout, state, version, metrics)
        self._run.observer.saved(seconds, failed=not saved)
