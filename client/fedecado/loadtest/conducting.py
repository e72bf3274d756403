"""A load test from its first worker to its last second."""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from fedecado.common.errors import FedecadoError
from fedecado.loadtest.generators import Generators
from fedecado.loadtest.record import At, Record, Sampler, Second
from fedecado.loadtest.watching import Watch

SAMPLE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Seconds of the test once all workers are there, and how long these may take to come."""

    measured: float
    connecting: float


@final
class Conductor:
    """Samples until the time is up; `shown` is called with every sample."""

    def __init__(
        self, generators: Generators, watch: Watch, record: Record, shown: Callable[[Record, Second], None]
    ) -> None:
        self._generators, self._watch, self._record, self._shown = generators, watch, record, shown
        self._sampler = Sampler(record)
        self._began = time.monotonic()
        self._patience = math.inf

    async def run(self, schedule: Schedule, stopping: asyncio.Event) -> None:
        """Return at the end, or when `stopping` is set; raise if a generator fails."""
        self._began = time.monotonic()
        broken = asyncio.create_task(self._generators.any_ended())
        stop = asyncio.create_task(stopping.wait())
        try:
            while not self._over(schedule, broken, stop):
                await asyncio.wait(
                    (broken, stop), timeout=SAMPLE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                await self._sample()
        finally:
            for task in (broken, stop):
                task.cancel()
        if broken.done() and not broken.cancelled():
            await broken  # raises if a generator failed
        await self._generators.stop()
        # What was counted while they said goodbye is no part of the time measured, but errors are errors.
        self._sampler.finish(self._generators.take())

    def _over(self, schedule: Schedule, broken: "asyncio.Task[None]", stop: "asyncio.Task[bool]") -> bool:
        """Whether it is the end, whatever the reason."""
        record, now = self._record, time.monotonic() - self._began
        if stop.done():
            record.ended = "interrupted"
        elif broken.done() or self._generators.ended >= record.workers:
            record.ended = "the workers had ended"
        elif record.connecting is not None:
            return now >= record.connecting + schedule.measured
        else:
            self._look_for_everybody(now, schedule.connecting)
            return False
        return True

    def _look_for_everybody(self, now: float, patience: float) -> None:
        record = self._record
        missing = record.workers - self._generators.connected - self._generators.ended
        if self._patience == math.inf and self._generators.speaking:
            self._patience = now + patience
        if missing > 0 and now < self._patience:
            return
        if missing == record.workers:
            seen = ", ".join(f"{kind} ({n})" for kind, n in record.errors.errors.items()) or "no answer"
            raise FedecadoError(
                f"none of {record.workers} workers was welcome within {now:.0f} s; they saw: {seen}"
            )
        record.connecting, record.never_connected = now, max(0, missing)

    async def _sample(self) -> None:
        sight, now = await self._watch.look(), time.monotonic() - self._began
        generators = self._generators
        at = At(generators.connected, generators.cpu, generators.late)
        self._shown(self._record, self._sampler.add(now, generators.take(), sight, at))
