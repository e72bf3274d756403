"""The run: events from sessions and timers go to the engine, its effects are carried out.

Decisions are taken in synchronous methods on the event loop; what touches long vectors or files
follows beside it (`beside`), and comes back as another event. How an effect is carried out is up to the
run's parts: `handout`, `intake`, `computing`, `judging`, `keeping`, `durable`.
"""

import asyncio
import logging
import time
from functools import partial
from pathlib import Path
from typing import Any, assert_never

from fedecado.common.errors import LayoutError, RoundError
from fedecado.common.layout import Layout, Vector
from fedecado.common.logs import about
from fedecado.common.names import COMPACT, Compact
from fedecado.common.timeouts import Timeouts
from fedecado.server.algorithms import Algorithm
from fedecado.server.coordinator.beside import Beside
from fedecado.server.coordinator.computing import Computing
from fedecado.server.coordinator.durable import Durable
from fedecado.server.coordinator.facts import Facts
from fedecado.server.coordinator.first_model import Begin, Begun, FirstModel
from fedecado.server.coordinator.handout import Handout
from fedecado.server.coordinator.intake import Intake
from fedecado.server.coordinator.judging import Judging
from fedecado.server.coordinator.keeping import Keeping
from fedecado.server.coordinator.members import Member
from fedecado.server.coordinator.memory import (
    dump_journal,
    dump_members,
    load_journal,
    load_members,
    note_measurement,
    note_member,
)
from fedecado.server.coordinator.models import ModelFiles
from fedecado.server.federation import Federation
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
from fedecado.server.store import Capture, Flush, Outcome, Recovered, Store, counts
from fedecado.v1 import session_pb2 as pb

log = logging.getLogger(__name__)


class Run(Facts):
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
        super().__init__(engine)
        self.files = files
        self.beside = Beside(self._fail)
        self.durable = Durable(self.beside, self._flushed)
        self.intake = Intake(self, self.durable, self.beside, self.handle)
        self.handout = Handout(self, self.beside)
        self._computing = Computing(self, self.beside)
        self._keeping = Keeping(self, files, self.beside)
        self._judging = Judging(evaluate_every, self, partial(self._keeping.save, "best"))
        self.upload_formats: tuple[Compact, ...] = COMPACT
        """What updates may come in beside full precision."""
        self._changed: asyncio.Event | None = None
        self.finished = asyncio.Event()
        self.closing = False
        """Whether the coordinator goes down before the run is over."""
        self.failure: BaseException | None = None
        """What went wrong inside; the process ends with it."""
        make = begin or (lambda layout, state: (Federation(engine, algorithm, layout, state), None))
        self._timeouts = timeouts or Timeouts()
        self._first = FirstModel(make, self._begin, self.members, self.beside, self._timeouts.first_model)
        self.stop_reason: str | None = None
        """Why the run ends when the open round has closed."""

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
        federation.spends_updates = store is None
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
        return self.intake.holds(member, header.task_id)

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
        if self.intake.holds(member, failure.task_id):
            self.handle(TaskFailed(member.id, failure.task_id))
        self._maybe_finished()

    def measured(self, member: Member, answer: pb.Evaluation) -> None:
        """An evaluator's answer."""
        measurement = self._judging.answered(member, answer)
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
        if self.engine.open or self._computing.busy:
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
        return await self._keeping.save_last()

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
            self._computing.forget(event.client)
        if self.durable.store is not None:
            task = event.task if isinstance(event, UpdateArrived) and counts(effects) else None
            self.durable.record(event, None if task is None else self.intake.results.get(task), outcome)
        for effect in effects:
            self._carry_out(effect)
        self.durable.flush()
        self.notify()

    def _carry_out(self, effect: Effect) -> None:
        match effect:  # the most frequent ones first
            case Assign():
                self.durable.send(partial(self.handout.assign, effect))
            case Accept(task, client, duplicate):
                if self.intake.accept(self.members.by_id[client], task, duplicate=duplicate):
                    self._computing.absorb()
            case DropVersion(version):
                if self.federation is not None:
                    self.federation.drop(version)
            case CloseRound(number, tasks):
                self._computing.busy = True
                self.beside.spawn(self._close(number, tasks, self.engine.enrolled))
            case Refuse(task, client, reason):
                self.intake.refuse(self.members.by_id[client], task, reason)
            case Cancel(number, client, reason):
                self.durable.send(partial(self.handout.cancel, client, number, reason))
            case StartTimer(seconds, number, task):
                event = DeadlinePassed(number) if task is None else LeaseExpired(task)
                self.beside.after(seconds, lambda: self.handle(event))
            case Finish(reason):
                log.info("the run is over: %s", reason)
                self.beside.after(self._timeouts.last_look, self.finished.set)
                self._maybe_finished()
            case _:
                assert_never(effect)

    async def _close(self, number: int, tasks: tuple[int, ...], enrolled: int) -> None:
        """Have a round computed, open the next, and write the closed one up."""
        federation = self.federation
        if federation is None:
            raise RoundError(f"round {number} closed without a model")
        made = await self._computing.compute(federation, number, tasks, enrolled)
        if made is None:
            self.observer.discarded()
            self._computing.busy = False
            self.handle(Discarded())
            return
        self.handle(made.closed.event, self.durable.outcome_of(federation, made.closed))
        if self.engine.open:  # else the run is over, or the next round closes already: in its turn
            # The new tasks are on their way before this round is written up; a worker whose acknowledgement
            # was still being sent gets its task one turn of the loop later than the others.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        made.write_up(self)
        self.notify()
        if self.stop_reason is not None:
            self.handle(Stopped(self.stop_reason))
        seconds, version = made.seconds, made.closed.version
        if log.isEnabledFor(logging.INFO):
            log.info(
                "round %d: %d updates, %.3f s, version %d",
                *(number, len(tasks), seconds, version),
                extra=about(round=number, updates=len(tasks), seconds=seconds, version=version),
            )
        self._published(version, made.state)
        # Only now: a run that is over still has its last version measured.
        self._computing.busy = self.engine.closing != ()
        self._maybe_finished()

    def _published(self, version: int, state: Vector) -> None:
        """A new version is there: have it measured and, now and then, written down."""
        self._judging.publish(version, state)
        self._keeping.published(version, state)
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

    def _flushed(self, what: Flush, seconds: float) -> None:
        self.observer.flushed(what, seconds)  # whoever watches by then

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self.finished.set()

    def _maybe_finished(self) -> None:
        if self.engine.finished and not self._computing.busy and not self._judging.busy:
            # After the acknowledgements that still wait for the disk.
            self.durable.send(self.finished.set)
            self.durable.flush()
