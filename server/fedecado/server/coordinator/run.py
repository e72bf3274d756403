"""The run: events from sessions and timers go to the engine, its effects are carried out.

Decisions are taken in synchronous methods on the event loop; what touches long vectors or files
follows beside it (`beside`), and comes back as another event.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, assert_never

from fedecado.common.errors import FedecadoError, LayoutError, NumericsError, RoundError
from fedecado.common.layout import Layout, Vector
from fedecado.common.logs import about
from fedecado.common.names import COMPACT, Compact
from fedecado.common.timeouts import Timeouts
from fedecado.server.algorithms import Algorithm
from fedecado.server.coordinator.beside import Beside
from fedecado.server.coordinator.durable import Durable
from fedecado.server.coordinator.first_model import Begin, Begun, FirstModel
from fedecado.server.coordinator.inbox import Received, result_of
from fedecado.server.coordinator.journal import Journal, summarise
from fedecado.server.coordinator.judging import Judging
from fedecado.server.coordinator.members import Member, Members
from fedecado.server.coordinator.memory import (
    dump_journal,
    dump_members,
    load_journal,
    load_members,
    note_measurement,
    note_member,
)
from fedecado.server.coordinator.models import ModelFiles
from fedecado.server.coordinator.post import Suggestions, Version, acknowledge, assignment
from fedecado.server.coordinator.refusals import label, refused_result
from fedecado.server.coordinator.session import Session
from fedecado.server.coordinator.untrusted import checked_update
from fedecado.server.federation import Federation, Offer, Result, is_usable, usual_displacement
from fedecado.server.observe.observer import NoObserver, Observer, Window
from fedecado.server.observe.traces import NoTraces, Traces
from fedecado.server.rounds import (
    Accept,
    Assign,
    Banned,
    Cancel,
    CloseRound,
    DeadlinePassed,
    Discarded,
    Disconnected,
    DropVersion,
    Effect,
    Engine,
    Enrolled,
    Event,
    Finish,
    LeaseExpired,
    Measured,
    Paused,
    Refuse,
    StartTimer,
    Stopped,
    TaskFailed,
    UpdateArrived,
    describe,
    timers,
)
from fedecado.server.store import Capture, Closed, Flush, Outcome, Recovered, Store, counts
from fedecado.v1 import session_pb2 as pb

log = logging.getLogger(__name__)

SAVE_SECONDS = 10.0
"""Least time between two writes of the last model while rounds go on."""

LIGHT_BYTES = 1 << 20
"""Vectors of up to this size together are worked on in the loop: handing them to a thread costs more."""

R = TypeVar("R")


class Run:
    """One run, from its first worker to its last round."""

    def __init__(
        self,
        engine: Engine,
        algorithm: Algorithm[Any],
        files: ModelFiles,
        *,
        evaluate_every: int = 1,
        begin: Begin | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.engine, self.files = engine, files
        self.members, self.journal = Members(), Journal()
        self.beside = Beside(self._fail)
        self.durable = Durable(self.beside, self._flushed)
        self._judging = Judging(evaluate_every, self.journal, partial(self._save, "best"))
        self.observer: Observer = NoObserver()
        self.traces: Traces = NoTraces()
        self.suggestions = Suggestions()
        self.upload_formats: tuple[Compact, ...] = COMPACT
        """What updates may come in beside full precision."""
        self.layout: Layout | None = None
        self.federation: Federation | None = None
        self._changed: asyncio.Event | None = None
        self.finished = asyncio.Event()
        self.closing = False
        """Whether the coordinator goes down before the run is over."""
        self.failure: BaseException | None = None
        """What went wrong inside; the process ends with it."""
        make = begin or (lambda layout, state: (Federation(engine, algorithm, layout, state), None))
        self._timeouts = timeouts or Timeouts()
        self._first = FirstModel(make, self._begin, self.members, self.beside, self._timeouts.first_model)
        self._version: Version | None = None
        self._results: dict[int, Result] = {}
        self._aggregating = False
        self._leaving: list[str] = []
        """Clients to forget when the round that is being computed is done."""
        self._absorbing = False
        """Whether the numerics thread has begun with the open round, and so must finish it."""
        self.stop_reason: str | None = None
        """Why the run ends when the open round has closed."""
        self._saved = time.monotonic()

    def agree(self, layout: Layout) -> None:
        """Take the first worker's layout as the run's, or check a later one against it."""
        if self.layout is None:
            self.layout = layout
        elif layout.digest != self.layout.digest:
            raise LayoutError(
                f"your model's layout is {layout.digest[:12]} ({layout.parameters} parameters), the run's is "
                f"{self.layout.digest[:12]} ({self.layout.parameters}); build the same model on every worker"
            )

    async def start_from(self, layout: Layout, state: Vector) -> None:
        """Begin with this model: everyone who waits is enrolled."""
        self.agree(layout)
        await self._first.start(layout, state)

    def initial(self, member: Member, state: Vector) -> None:
        """A worker's model is here, to start from."""
        if self.layout is not None:
            self._first.received(member, self.layout, state)

    def _begin(self, begun: Begun) -> None:
        federation, store = begun
        banned = self.engine.banned
        self.federation, self.engine = federation, federation.engine
        if store is not None:
            self.files.run_id = store.run_id
            self.durable.open(store)
        log.info("the run starts with %d parameters", federation.layout.parameters)
        for client, reason in list(banned.items()):
            self.handle(Banned(client, reason))
        for member in self.members.connected(trains=True):
            self.durable.note(note_member(member))
            self.handle(Enrolled(member.id, member.hello.samples))

    def resume(self, recovered: Recovered, grace: float) -> None:
        """Go on with a run that was stored; workers have `grace` seconds to come back with their tasks."""
        self._first.spare()
        self.federation, self.engine = recovered.federation, recovered.engine
        self.layout, self.files.run_id = recovered.federation.layout, recovered.store.run_id
        self.members = load_members(recovered.members, recovered.notes)
        self.journal = load_journal(
            recovered.journal, recovered.notes, recovered.driver.rounds, self.federation.version
        )
        self._judging.remember(self.journal)
        self.durable.open(recovered.store)
        for timer in timers(self.engine):
            self._carry_out(timer)
        version = self.federation.version
        # What is over and started again, as by Kubernetes on another node, still has a model to serve.
        becomes = "is over and is served" if self.engine.finished else "goes on"
        log.info(
            "the run %s at version %d; %s",
            becomes,
            version,
            describe(self.engine),
            extra=about(version=version),
        )
        if (closed := recovered.driver.closed) is not None:
            self.handle(closed.event, self.durable.outcome_of(self.federation, closed))
        self.beside.after(grace, self._miss_the_absent)
        self._maybe_finished()

    def _miss_the_absent(self) -> None:
        for client, record in list(self.engine.roster.clients.items()):
            member = self.members.by_id.get(client)
            if record.connected and (member is None or member.session is None):
                self.handle(Disconnected(client))

    def joined(self, member: Member, held: tuple[int, ...]) -> None:
        """A worker is welcome and listening; `held` are tasks it will still deliver."""
        if not member.trains:
            self._judging.ask(member)
        elif self.federation is not None:
            self.durable.note(note_member(member))
            self.handle(Enrolled(member.id, member.hello.samples, held))
        else:
            self._first.ask()
        self.notify()

    def left(self, member: Member) -> None:
        """A worker's session ended, whatever the reason."""
        member.session, member.progress, member.seen = None, None, time.time()
        self._judging.release(member)
        self._first.left(member)
        if not self._first.begun and not any(m.session is not None for m in self.members.by_id.values()):
            self.layout = None  # of one who came and went; the next one's model may be another
        # A coordinator that goes down leaves its workers' tasks as they are: they come back with them.
        if member.id in self.engine.roster and not self.closing:
            self.handle(Disconnected(member.id))
        self._maybe_finished()
        self.notify()

    def wants(self, member: Member, header: pb.Update | pb.InitialState) -> bool:
        """Whether a vector of this worker's is worth receiving."""
        if isinstance(header, pb.InitialState):
            return self._first.wants(member)
        return self._holds(member, header.task_id)

    def start_of(self, header: pb.Update | pb.InitialState) -> Vector | None:
        """The version that an update's task began with."""
        task = None if isinstance(header, pb.InitialState) else self.engine.tasks.get(header.task_id)
        return None if task is None or self.federation is None else self.federation.state_of(task.version)

    def unwanted(self, member: Member, header: pb.Update | pb.InitialState) -> None:
        """Say what became of a transfer that was passed over; the engine need not hear of it."""
        task = 0 if isinstance(header, pb.InitialState) else header.task_id
        known = self.engine.roster.clients.get(member.id)
        if not task:
            acknowledge(member, 0, pb.Acknowledge.OUTCOME_DUPLICATE)
        elif known is not None and known.last_done == task:
            self._accept(member, task, duplicate=True)
            self.durable.flush()
        else:
            text = f"task {task} is not open for {member.id!r}; it is another's, cancelled or too old"
            self._refuse(member, task, text, pb.Acknowledge.REASON_UNKNOWN_TASK)

    def _holds(self, member: Member, task: int) -> bool:
        known = self.engine.roster.clients.get(member.id)
        return known is not None and known.task == task

    async def deliver(self, member: Member, header: pb.Update, received: Received) -> None:
        """A worker's update is complete."""
        task, record = header.task_id, self.engine.tasks.get(header.task_id)
        self.journal.bytes_received += header.state_bytes
        self.traces.arrived(task, member.id, header.traceparent)
        if member.id not in self.engine.roster:
            self._refuse(member, task, f"{member.id} does not train here", pb.Acknowledge.REASON_UNKNOWN_TASK)
            return
        if self.federation is not None and record is not None and record.client == member.id:
            header = checked_update(header)
            result = result_of(header, received, member.curvature)
            try:
                if not math.isclose(header.weight, record.weight, rel_tol=1e-9):
                    raise NumericsError(f"the window is for w_i = {header.weight}, not {record.weight}")
                if header.model_version != record.version:
                    raise NumericsError(f"it starts from {header.model_version}, not from {record.version}")
                usual = self._usual(self.federation)
                # Who is not guarded and has a length that is known needs no look at the vector.
                if self._light(1) or (usual is None and is_usable(result)):
                    self.federation.check(task, result, usual)
                else:
                    await self.beside.numerics(self.federation.check, task, result, usual)
            except RoundError:
                pass  # cancelled meanwhile; the engine refuses it below
            except (NumericsError, LayoutError) as error:
                self.spoiled(member, task, error)
                return
            if member.id not in self.engine.roster:
                return  # banned while its update was looked at
            self._results[task] = result
            member.note_update(header)
            member.curvature = result.curvature
        self.handle(UpdateArrived(member.id, task))

    def _usual(self, federation: Federation) -> float | None:
        """How long displacements were of late, where that is compared."""
        if not federation.guarded:
            return None
        return usual_displacement(closed.details for closed in reversed(self.journal.rounds))

    def spoiled(self, member: Member, task: int, error: FedecadoError) -> None:
        """An update that cannot be used: its sender is told why, and is free for other work."""
        reason = refused_result(error)
        self._refuse(member, task, str(error), reason, label(error))
        if reason != pb.Acknowledge.REASON_DAMAGED and self._holds(member, task):
            self.handle(TaskFailed(member.id, task))  # a damaged one is sent again

    def failed(self, member: Member, failure: pb.TaskFailed) -> None:
        """The user's code failed on a worker."""
        member.failed, member.progress = member.failed + 1, None
        self.observer.updated("failed")
        member.blame(
            failure.exception_type, failure.message, task=failure.task_id, traceback=failure.traceback
        )
        log.warning(
            "%s failed: %s: %s",
            *(member.id, failure.exception_type, failure.message),
            extra=about(worker=member.id, task=failure.task_id, round=self.engine.round),
        )
        self._judging.release(member)
        if self._holds(member, failure.task_id):
            self.handle(TaskFailed(member.id, failure.task_id))
        self._maybe_finished()

    def measured(self, member: Member, answer: pb.Evaluation) -> None:
        """An evaluator's answer."""
        measurement = self._judging.answered(member, answer, self.engine.rules.target)
        if measurement is not None:
            best = measurement is self.journal.best
            self.durable.note(note_measurement(measurement, best=best))
            self.observer.measured(measurement)
            self.handle(Measured(measurement.version, measurement.metrics))
        self._judging.ask(member)
        self._maybe_finished()

    def goodbye(self) -> pb.CoordinatorBye:
        """The last word to a worker: the run is over, or its coordinator is."""
        bye = pb.CoordinatorBye
        if self.closing:
            return bye(reason=bye.REASON_SHUTTING_DOWN, message="the coordinator shuts down")
        return bye(reason=bye.REASON_FINISHED, message=str(self.engine.finished))

    def shut_down(self, reason: str) -> None:
        """The coordinator goes down; workers keep what they hold and come back.

        A run with a store goes on then; without one it ends here.
        """
        self.closing = True
        self.dismiss()
        if self.durable.store is None:
            self.handle(Stopped(reason))

    def dismiss(self) -> None:
        """Say goodbye to everyone who is connected."""
        for member in self.members.by_id.values():
            if member.session is not None:
                member.session.close(self.goodbye())

    def stop_after_round(self, reason: str) -> None:
        """End the run when the open round has closed; at once if none is open."""
        if self.engine.open or self._aggregating:
            self.stop_reason = reason
            self.handle(Paused())
        else:
            self.handle(Stopped(reason))

    async def checkpoint(self) -> Path | None:
        """Make all that has happened so far durable and write the newest version."""
        await self.durable.sync()
        return await self.save_last()

    async def save_last(self) -> Path | None:
        """Write the newest version; none when there is no model yet."""
        if self.federation is None:
            return None
        await self._write("last", self.federation.version, self.federation.central)
        return self.files.path("last")

    def waiting_for(self) -> str:
        """What the run waits for, in words."""
        if self.federation is None:
            return f"waiting for the initial model from {self._first.waiting_for}"
        return describe(self.engine)

    @property
    def changed(self) -> asyncio.Event:
        """Set, and replaced, at the next change; made when somebody asks, for most changes nobody watches."""
        if self._changed is None:
            self._changed = asyncio.Event()
        return self._changed

    def notify(self) -> None:
        """Wake those who watch the run."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def handle(self, event: Event, outcome: Outcome | None = None) -> None:
        """Let the engine decide, and carry its effects out; `outcome` is of the round it is told of."""
        effects = self.engine.handle(event)
        if isinstance(event, Banned):
            self._forget(event.client)
        task = event.task if isinstance(event, UpdateArrived) and counts(effects) else None
        self.durable.record(event, None if task is None else self._results.get(task), outcome)
        for effect in effects:
            self._carry_out(effect)
        self.durable.flush()
        self.notify()

    def _forget(self, client: str) -> None:
        """Take a client out of the balance; after the round being computed, which rewrites the flows."""
        if self._aggregating:
            self._leaving.append(client)
        elif self.federation is not None:
            self.federation.forget(client)

    def _part(self, federation: Federation) -> None:
        """A round is computed or given up: now forget those who were banned meanwhile."""
        leaving, self._leaving = self._leaving, []
        for client in leaving:
            federation.forget(client)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Assign():
                self.durable.send(partial(self._assign, effect))
            case Accept(task, client, duplicate):
                self._accept(self.members.by_id[client], task, duplicate)
            case Refuse(task, client, reason):
                self._results.pop(task, None)
                self._refuse(self.members.by_id[client], task, reason, pb.Acknowledge.REASON_UNKNOWN_TASK)
            case Cancel(number, client, reason):
                self.durable.send(partial(self._cancel, client, number, reason))
            case StartTimer(seconds, number, task):
                event = DeadlinePassed(number) if task is None else LeaseExpired(task)
                self.beside.after(seconds, lambda: self.handle(event))
            case CloseRound(number, tasks):
                self._aggregating = True
                self.beside.spawn(self._close(number, tasks, self.engine.enrolled))
            case DropVersion(version):
                if self.federation is not None:
                    self.federation.drop(version)
            case Finish(reason):
                log.info("the run is over: %s", reason)
                self.beside.after(self._timeouts.last_look, self.finished.set)
                self._maybe_finished()
            case _:
                assert_never(effect)

    def _cancel(self, client: str, task: int, reason: str) -> None:
        if (session := self.members.by_id[client].session) is not None:
            session.send(pb.Cancel(task_id=task, reason=reason))

    def _assign(self, effect: Assign) -> None:
        """Hand a task out: at once if its vectors are short, so that it costs no task of the event loop."""
        member, federation = self.members.by_id[effect.client], self.federation
        session = member.session
        if session is None or federation is None or effect.task not in self.engine.tasks:
            return
        if self._light(1):
            self._post(effect, member, session, federation.offer(effect.task))
        else:
            self.beside.spawn(self._assign_long(effect, member, session, federation))

    async def _assign_long(
        self, effect: Assign, member: Member, session: Session, federation: Federation
    ) -> None:
        try:
            offer = await self.beside.numerics(federation.offer, effect.task)
        except RoundError:
            return  # cancelled before its turn came; the engine knows
        if effect.task in self.engine.tasks and member.session is session:  # else the engine knows
            self._post(effect, member, session, offer)

    def _post(self, effect: Assign, member: Member, session: Session, offer: Offer) -> None:
        trace = self.traces.assigned(effect.task, effect.round, member.id)
        version = self._encoded(offer.version, offer.state)
        parcel, size = assignment(offer, effect.round, version, self.suggestions, member, trace)
        session.send_parcel(parcel)
        self.journal.bytes_sent += size
        member.task_since, member.progress = time.time(), None

    def _encoded(self, number: int, state: Vector) -> Version:
        """A version as it goes out, made once for all workers."""
        if self._version is None or self._version.number != number:
            self._version = Version(number, state)
        return self._version

    def _accept(self, member: Member, task: int, duplicate: bool) -> None:
        result = self._results.pop(task, None)
        if duplicate or result is None or self.federation is None:
            self.observer.updated("duplicate")
            self.traces.answered(task, "duplicate")
            self.durable.send(lambda: acknowledge(member, task, pb.Acknowledge.OUTCOME_DUPLICATE))
            return
        self.federation.accept(task, result)
        self.journal.accepted += 1
        self.observer.updated("accepted")
        self.traces.answered(task, "accepted")
        member.accepted, member.last_round, member.progress = member.accepted + 1, self.engine.round, None
        self.durable.send(
            lambda: acknowledge(member, task, pb.Acknowledge.OUTCOME_ACCEPTED), urgent=not self._light(1)
        )
        if self.federation.eager and self.engine.open and not self._light(len(self.engine.ready)):
            self._absorbing = True
            self.beside.spawn(self.beside.numerics(self.federation.absorb, tuple(self.engine.ready)))

    def _refuse(
        self,
        member: Member,
        task: int,
        message: str,
        reason: "pb.Acknowledge.Reason.ValueType",
        label: str = "unknown_task",
    ) -> None:
        member.refused, member.progress = member.refused + 1, None
        self.journal.refused += 1
        self.traces.answered(task, "refused")
        self.observer.updated("refused", label)
        member.blame(pb.Acknowledge.Reason.Name(reason), message, task=task)
        log.warning(
            "refused task %d of %s: %s",
            *(task, member.id, message),
            extra=about(worker=member.id, task=task, round=self.engine.round),
        )
        acknowledge(member, task, pb.Acknowledge.OUTCOME_REFUSED, reason, message)

    async def _close(self, number: int, tasks: tuple[int, ...], enrolled: int) -> None:
        """Aggregate a round beside the event loop, then open the next."""
        federation, began = self.federation, time.perf_counter()
        if federation is None:
            raise RoundError(f"round {number} closed without a model")
        opened, late = self.journal.round_opened, self.engine.late
        light, self._absorbing = self._light(len(tasks)) and not self._absorbing, False
        behind = [self.engine.version - self.engine.tasks[task].version for task in tasks]
        self.traces.aggregating(number, tasks)
        try:
            await self._heavy(federation.aggregate, tasks, enrolled, light=light)
            delivered = federation.results(tasks)
            report = await self._heavy(federation.commit, tasks, light=light)
        except NumericsError as error:
            log.error(
                "round %d could not be aggregated and is dropped: %s",
                number,
                error,
                extra=about(round=number),
            )
            self.traces.aggregated(number, failed=True)
            federation.discard(tasks)
            self._part(federation)
            self.observer.discarded()
            self._aggregating = False
            self.handle(Discarded())
            return
        self._part(federation)
        self.traces.aggregated(number)
        seconds, version, state = time.perf_counter() - began, federation.version, federation.central
        closed = summarise(number, version, delivered, report, seconds, opened)
        made = Closed(number, version, tasks, enrolled, tuple(delivered), report)
        self.handle(made.event, self.durable.outcome_of(federation, made))
        if self.engine.open:  # else the run is over, or the next round closes already: in its turn
            await asyncio.sleep(0)  # the new tasks are on their way before this round is written up
        told = zip(delivered, behind, strict=True)
        windows = tuple(
            Window(client, result.time, lag, report.flows.get(client)) for (client, result), lag in told
        )
        self.journal.add_round(closed, windows, late=late)
        self.members.note_flows(windows)
        for worker in self.members.distrust(report.distrusted):
            found = about(round=number, worker=worker)
            log.warning("%s does not follow its flow; its updates do not count", worker, extra=found)
        self.observer.closed(self.journal.rounds[-1], windows)
        self.notify()
        if self.stop_reason is not None:
            self.handle(Stopped(self.stop_reason))
        log.info(
            "round %d: %d updates, %.3f s, version %d",
            *(number, len(tasks), seconds, version),
            extra=about(round=number, updates=len(tasks), seconds=seconds, version=version),
        )
        self._published(version, state)
        # Only now: a run that is over still has its last version measured.
        self._aggregating = self.engine.closing != ()
        self._maybe_finished()

    def _published(self, version: int, state: Vector) -> None:
        """A new version is there: have it measured and, now and then, written down."""
        self._judging.publish(version, state, self.members, last=self.engine.finished is not None)
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self._saved = time.monotonic()
            self._save("last", version, state)
        if not self.engine.closing:
            self.durable.checkpoint(self._capture)

    def _capture(self, store: Store) -> Capture:
        assert self.federation is not None  # noqa: S101 - there is a store, so there is a model
        return store.capture(
            self.federation, members=dump_members(self.members), journal=dump_journal(self.journal)
        )

    async def close(self) -> None:
        """Write the last state and leave the store to others."""
        quiet = self.federation is not None and not self.engine.closing
        await self.durable.close(self._capture if quiet else None)
        self.beside.close()

    def _light(self, vectors: int) -> bool:
        return self.layout is None or vectors * self.layout.nbytes <= LIGHT_BYTES

    async def _heavy(self, work: Callable[..., R], *arguments: Any, light: bool) -> R:
        """Work on vectors: beside the loop unless it is light."""
        return work(*arguments) if light else await self.beside.numerics(work, *arguments)

    def _save(self, which: str, version: int, state: Vector) -> None:
        self.beside.spawn(self._write(which, version, state))

    async def _write(self, which: str, version: int, state: Vector) -> None:
        if self.layout is None:
            return
        measured = self.journal.measurement(version)
        metrics = {} if measured is None else measured.metrics
        seconds, saved = await self.beside.files(self.files.save, which, self.layout, state, version, metrics)
        self.observer.saved(seconds, failed=not saved)

    def _flushed(self, what: Flush, seconds: float) -> None:
        self.observer.flushed(what, seconds)  # whoever watches by then

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self.finished.set()

    def _maybe_finished(self) -> None:
        if self.engine.finished and not self._aggregating and not self._judging.busy:
            # After the acknowledgements that still wait for the disk.
            self.durable.send(self.finished.set)
            self.durable.flush()
