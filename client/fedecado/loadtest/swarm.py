"""All simulated workers of one process: they come one after the other, and storms make them come at once."""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import final

from fedecado.loadtest.metering import RoundStarts, Tallies
from fedecado.loadtest.plan import Plan
from fedecado.loadtest.synthetic import SyntheticTask
from fedecado.loadtest.worker import SimulatedWorker


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the workers of a process are."""

    connected: int
    ended: int
    started: int


@final
class Swarm:
    """`await run(stopping)` is the whole life of a generator's workers."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.honest, self.bad = Tallies(), Tallies()
        self.rounds = RoundStarts()
        task = SyntheticTask(plan.parameters, plan.seed)
        numbers = range(plan.first, plan.first + plan.count)
        self._workers = [
            SimulatedWorker(plan, n, task, self.bad if n in plan.bad else self.honest, self.rounds)
            for n in numbers
        ]
        self._honest = [worker for n, worker in zip(numbers, self._workers, strict=True) if n not in plan.bad]
        self._started = self._ended = 0

    @property
    def standing(self) -> Standing:
        """Of the honest workers; nobody waits for the others."""
        return Standing(sum(worker.connected for worker in self._honest), self._ended, self._started)

    async def run(self, stopping: asyncio.Event) -> None:
        """Return when every worker has ended; they all do soon after `stopping`."""
        async with asyncio.TaskGroup() as group:
            storms = group.create_task(self._storms())
            async with asyncio.TaskGroup() as workers:
                for worker in self._workers:
                    if await _within(stopping, 1.0 / self._plan.connect_rate):
                        break
                    self._started += 1
                    workers.create_task(self._live(worker, stopping))
            storms.cancel()

    async def _live(self, worker: SimulatedWorker, stopping: asyncio.Event) -> None:
        try:
            await worker.run(stopping)
        finally:
            self._ended += 1

    async def _storms(self) -> None:
        if self._plan.storm_every is None:
            return
        draw = random.Random(f"{self._plan.seed}/storms/{self._plan.first}")
        while True:
            await asyncio.sleep(self._plan.storm_every)
            for worker in self._workers:
                if draw.random() < self._plan.storm_share:
                    worker.cut()


async def _within(event: asyncio.Event, seconds: float) -> bool:
    """Whether it is set by then."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
