"""The loop: take the next event from the clock, ask the engine, carry its effects out."""

import heapq
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np

from fedecado.common.errors import DataError, NumericsError, RoundError, TaskError
from fedecado.common.layout import Vector
from fedecado.server.federation import Federation, Result, usual_displacement
from fedecado.server.rounds import (
    Accept,
    Aggregated,
    Assign,
    Cancel,
    CloseRound,
    DeadlinePassed,
    Discarded,
    Disconnected,
    DropVersion,
    Effect,
    Enrolled,
    Event,
    Finish,
    LeaseExpired,
    Measured,
    Refuse,
    StartTimer,
    TaskFailed,
    UpdateArrived,
    describe,
)
from fedecado.simulator.crew import Alone, Crew
from fedecado.simulator.fleet import Fleet
from fedecado.simulator.history import ClientRecord, History, RoundRecord
from fedecado.simulator.trace import Trace
from fedecado.simulator.uplink import Uplink
from fedecado.simulator.workload import Workload

Watch = Callable[[RoundRecord], None]

FAILURES_IN_A_ROW = 5
"""A run in which every client has failed so often, and no round closed meanwhile, will not recover."""


@dataclass(order=True, slots=True)
class _Due:
    at: float
    order: int
    event: Event = field(compare=False)


class Simulation:
    """One run. With `replay`, arrivals come from a trace instead of the clock."""

    def __init__(
        self,
        federation: Federation,
        workload: Workload,
        fleet: Fleet,
        *,
        evaluate_every: int = 1,
        replay: Trace | None = None,
        watch: Watch | None = None,
        crew: Crew | None = None,
    ) -> None:
        self.federation, self._engine = federation, federation.engine
        self.history, self.trace = History(), Trace()
        self.failures: dict[str, str] = {}
        """The last error of each client that had one."""
        self._workload, self._fleet = workload, fleet
        self._crew: Crew = Alone(workload) if crew is None else crew
        self.uplink = Uplink("full", workload.layout)
        self._every, self._watch, self._replay = evaluate_every, watch, replay
        self._names = client_names(len(workload.samples))
        self._index = {name: i for i, name in enumerate(self._names)}
        self.history.clients = [
            ClientRecord(name, samples, rate=own.rate, epochs=own.epochs)
            for name, samples, own in zip(self._names, workload.samples, fleet.profiles, strict=True)
        ]
        _check_names(replay or Trace(), set(self._names))
        self._begun: set[int] = set()
        self._bytes = self._failed = 0
        self._results: dict[int, Result] = {}
        self._due: list[_Due] = []
        self._scheduled = 0
        self._now = 0.0

    def run(self) -> History:
        """Run to the end, and say how it ended."""
        self._began = time.perf_counter()
        try:
            for at, event in self._clock() if self._replay is None else self._replay:
                if self._engine.finished:
                    break
                self._now = at
                self.trace.add(at, event)
                self._happen(event)
        finally:
            self.history.ended = describe(self._engine)
            for client, error in self.failures.items():
                self.history.clients[self._index[client]].error = error
            self.history.seconds = time.perf_counter() - self._began
        return self.history

    def _clock(self) -> Iterator[tuple[float, Event]]:
        """Events in the order of virtual time; equal times in the order they were planned."""
        for name, samples in zip(self._names, self._workload.samples, strict=True):
            self._plan(0.0, Enrolled(name, samples))
        while self._due:
            due = heapq.heappop(self._due)
            yield due.at, due.event

    def _plan(self, after: float, event: Event) -> None:
        heapq.heappush(self._due, _Due(self._now + after, self._scheduled, event))
        self._scheduled += 1

    def _happen(self, event: Event) -> None:
        """Let the engine decide, and carry its effects out."""
        if isinstance(event, UpdateArrived):
            event = self._train(event)
        self._carry_out(self._engine.handle(event))

    def _train(self, event: UpdateArrived) -> Event:
        """The client's work, done when its result is due; a failure is an event too."""
        if event.task not in self._begun:
            return event  # cancelled meanwhile; the engine refuses it
        self._begun.discard(event.task)
        if event.task not in self._engine.tasks:
            self._crew.drop(event.task)
            return event
        try:
            result, sent = self._carried(event, self._crew.result(event.task))
            recent = usual_displacement(record.details for record in reversed(self.history.rounds))
            self.federation.check(event.task, result, recent)
        except (NumericsError, TaskError) as error:
            self.uplink.settle(event.client, event.task, counted=False)
            self._count_failure(event.client, error)
            return TaskFailed(event.client, event.task)
        self._results[event.task] = result
        self._bytes += sent
        return event

    def _carried(self, event: UpdateArrived, result: Result) -> tuple[Result, int]:
        """A result as the centre sees it."""
        start = self.federation.state_of(self._engine.tasks[event.task].version)
        if start is None:
            raise RoundError(f"the start of task {event.task} is gone")
        return self.uplink.carry(event.client, event.task, start, result)

    def _count_failure(self, client: str, error: NumericsError | TaskError) -> None:
        self.failures[client] = str(error)
        self._failed += 1
        if self._failed > FAILURES_IN_A_ROW * len(self._names):
            raise TaskError(f"{self._failed} tasks in a row failed, the last one of {client}: {error}")

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Assign():
                    self._assign(effect)
                case StartTimer(seconds, number, task):
                    self._later(seconds, DeadlinePassed(number) if task is None else LeaseExpired(task))
                case CloseRound(number, tasks):
                    self._close(number, tasks)
                case DropVersion(version):
                    self.federation.drop(version)
                case Cancel(task):
                    self._begun.discard(task)
                    self._crew.drop(task)
                case Accept(task, client, duplicate=False):
                    self.federation.accept(task, self._results.pop(task))
                    self.uplink.settle(client, task, counted=True)
                case Refuse(task, client):
                    self.uplink.settle(client, task, counted=False)
                case Finish() | Accept():
                    pass  # a simulated client does not mind
                case _:
                    assert_never(effect)

    def _assign(self, effect: Assign) -> None:
        client, task = self._index[effect.client], effect.task
        offer = self.federation.offer(task)
        self._begun.add(task)
        self._crew.begin(client, offer, self._fleet.profiles[client])
        drift: Vector | None = offer.assignment.drift
        self._bytes += offer.state.nbytes + (0 if drift is None else drift.nbytes)
        duration, outage = self._fleet.duration(client, task), self._fleet.outage(client, task)
        if outage is None:
            self._later(duration, UpdateArrived(effect.client, task))
            return
        share, away = outage
        self._later(share * duration, Disconnected(effect.client))
        self._later(share * duration + away, Enrolled(effect.client, self._workload.samples[client]))

    def _close(self, number: int, tasks: tuple[int, ...]) -> None:
        federation = self.federation
        try:
            federation.aggregate(tasks)
        except NumericsError:
            federation.discard(tasks)
            self._carry_out(self._engine.handle(Discarded()))
            raise
        starts = [federation.version - self._engine.tasks[task].version for task in tasks]
        delivered = federation.results(tasks)
        results = [result for _, result in delivered]
        report = federation.commit(tasks)
        for (name, result), behind in zip(delivered, starts, strict=True):
            client = self.history.clients[self._index[name]]
            client.updates, client.round, client.behind = client.updates + 1, number, behind
            client.window, client.flow = result.time, report.flows.get(name)
        metrics = self._measure(number, report.rate)
        record = RoundRecord(
            round=number,
            clock=self._now,
            time=federation.simulated_time,
            updates=len(tasks),
            staleness=float(np.mean(starts)),
            rate=report.rate,
            loss_before=float(np.mean([result.loss_before for result in results])),
            loss_after=float(np.mean([result.loss_after for result in results])),
            metrics=metrics,
            details=report.details,
            traffic=self._bytes,
        )
        self._failed = 0
        self.history.rounds.append(record)
        self.history.walls.append(time.perf_counter() - self._began)
        if self._watch:
            self._watch(record)
        self._carry_out(self._engine.handle(Aggregated(report.rate)))
        if metrics:
            self._carry_out(self._engine.handle(Measured(federation.version, metrics)))

    def _measure(self, number: int, rate: float) -> dict[str, float]:
        """Evaluate on schedule, and always the last round."""
        rules = self._engine.rules
        last = number == rules.max_rounds or (
            rules.rest_tolerance is not None and rate < rules.rest_tolerance
        )
        return self._workload.evaluate(self.federation.central) if last or number % self._every == 0 else {}

    def _later(self, after: float, event: Event) -> None:
        if self._replay is None:  # a replay brings these events itself
            self._plan(after, event)


def _check_names(replay: Trace, names: set[str]) -> None:
    named = {
        event.client for _, event in replay if isinstance(event, Enrolled | Disconnected | UpdateArrived)
    }
    if unknown := named - names:
        raise DataError(f"the trace names clients that are not here, such as {min(unknown)!r}")


def client_names(count: int) -> list[str]:
    """Names whose order is the order of the clients."""
    width = len(str(count - 1))
    return [f"client-{i:0{width}d}" for i in range(count)]
