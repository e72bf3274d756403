"""Computing a round from its updates, beside the event loop if they are long."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, final

from fedecado.common.errors import NumericsError
from fedecado.common.layout import Vector
from fedecado.common.logs import about
from fedecado.server.algorithms import Report
from fedecado.server.coordinator.beside import Beside
from fedecado.server.coordinator.facts import Facts
from fedecado.server.coordinator.journal import summarise
from fedecado.server.federation import Federation
from fedecado.server.observe.observer import Window
from fedecado.server.store import Closed

log = logging.getLogger(__name__)

R = TypeVar("R")


@final
@dataclass(slots=True)
class Computed:
    """A round that was computed: what the engine and the store are told, and what is written up of it."""

    closed: Closed
    report: Report
    state: Vector
    """The new version's."""
    opened: float
    ended: float
    """When the round was opened, and when it was computed."""
    seconds: float
    """What that took."""
    behind: list[int]
    """How many versions before the newest one its updates began, one by one."""
    late: bool

    def write_up(self, run: Facts) -> None:
        """Tell everyone who keeps record of rounds."""
        number, version, delivered = self.closed.round, self.closed.version, self.closed.delivered
        facts = number, version, delivered, self.report, self.seconds, self.opened
        summary = summarise(*facts, closed=self.ended)
        told, flows = zip(delivered, self.behind, strict=True), self.report.flows
        windows = tuple(Window(client, result.time, lag, flows.get(client)) for (client, result), lag in told)
        run.journal.add_round(summary, windows, late=self.late)
        run.members.note_flows(windows)
        for worker in run.members.distrust(self.report.distrusted):
            found = about(round=number, worker=worker)
            log.warning("%s does not follow its flow; its updates do not count", worker, extra=found)
        run.observer.closed(run.journal.rounds[-1], windows)


@final
class Computing:
    """Computes one round at a time."""

    def __init__(self, run: Facts, beside: Beside) -> None:
        self._run, self._beside = run, beside
        self.busy = False
        """Whether a round is closed and not yet done with: computed, written up, published."""
        self._absorbing = False
        """Whether the numerics thread has begun with the open round, and so must finish it."""
        self._leaving: list[str] = []
        """Clients to forget when the round that is being computed is done."""

    def forget(self, client: str) -> None:
        """Take a client out of the balance; after the round being computed, which rewrites the flows."""
        if self.busy:
            self._leaving.append(client)
        elif self._run.federation is not None:
            self._run.federation.forget(client)

    def absorb(self) -> None:
        """An update counts: begin with what is there of its round, if that saves time when it closes."""
        federation, engine = self._run.federation, self._run.engine
        if federation is None or not federation.eager or not engine.open:
            return
        if not self._run.is_light(len(engine.ready)):
            self._absorbing = True
            self._beside.spawn(self._beside.numerics(federation.absorb, tuple(engine.ready)))

    async def compute(
        self, federation: Federation, number: int, tasks: tuple[int, ...], enrolled: int
    ) -> Computed | None:
        """Aggregate a round into a new version; none if that cannot be, and its updates are dropped."""
        run, began = self._run, time.perf_counter()
        opened, late = run.journal.round_opened, run.engine.late
        light, self._absorbing = run.is_light(len(tasks)) and not self._absorbing, False
        behind = [run.engine.version - run.engine.tasks[task].version for task in tasks]
        run.traces.aggregating(number, tasks)
        try:
            await self._heavy(federation.aggregate, tasks, enrolled, light=light)
            delivered = federation.results(tasks)
            report = await self._heavy(federation.commit, tasks, light=light)
        except NumericsError as error:
            log.error(
                "round %d could not be aggregated and is dropped: %s",
                *(number, error),
                extra=about(round=number),
            )
            run.traces.aggregated(number, failed=True)
            federation.discard(tasks)
            self._part(federation)
            return None
        self._part(federation)
        run.traces.aggregated(number)
        seconds, version, state = time.perf_counter() - began, federation.version, federation.central
        closed = Closed(number, version, tasks, enrolled, tuple(delivered), report)
        return Computed(closed, report, state, opened, time.time(), seconds, behind, late)

    def _part(self, federation: Federation) -> None:
        """A round is computed or given up: now forget those who were banned meanwhile."""
        leaving, self._leaving = self._leaving, []
        for client in leaving:
            federation.forget(client)

    async def _heavy(self, work: Callable[..., R], *arguments: Any, light: bool) -> R:
        """Work on vectors: beside the loop unless it is light."""
        return work(*arguments) if light else await self._beside.numerics(work, *arguments)
