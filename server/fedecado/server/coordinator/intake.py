"""Taking updates in: each is looked at, the engine decides, and its sender is told what became of it."""

import logging
import math
from collections.abc import Callable
from typing import final

from fedecado.common.errors import FedecadoError, LayoutError, NumericsError, RoundError
from fedecado.common.layout import Vector
from fedecado.common.logs import about
from fedecado.server.coordinator.beside import Beside
from fedecado.server.coordinator.durable import Durable
from fedecado.server.coordinator.facts import Facts
from fedecado.server.coordinator.inbox import Received, result_of
from fedecado.server.coordinator.members import Member
from fedecado.server.coordinator.post import acknowledge
from fedecado.server.coordinator.refusals import label, refused_result
from fedecado.server.coordinator.untrusted import checked_update
from fedecado.server.federation import Federation, Result, is_usable, usual_displacement
from fedecado.server.rounds import Event, TaskFailed, UpdateArrived
from fedecado.v1 import session_pb2 as pb

log = logging.getLogger(__name__)


@final
class Intake:
    """`handle` takes events to the engine, which has updates accepted or refused here."""

    def __init__(self, run: Facts, durable: Durable, beside: Beside, handle: Callable[[Event], None]) -> None:
        self._run, self._durable, self._beside, self._handle = run, durable, beside, handle
        self.results: dict[int, Result] = {}
        """By task, those that the engine is being told of."""

    def holds(self, member: Member, task: int) -> bool:
        """Whether a task is this worker's to deliver."""
        known = self._run.engine.roster.clients.get(member.id)
        return known is not None and known.task == task

    def start_of(self, header: pb.Update | pb.InitialState) -> Vector | None:
        """The version that an update's task began with."""
        federation = self._run.federation
        task = None if isinstance(header, pb.InitialState) else self._run.engine.tasks.get(header.task_id)
        return None if task is None or federation is None else federation.state_of(task.version)

    def unwanted(self, member: Member, header: pb.Update | pb.InitialState) -> None:
        """Say what became of a transfer that was passed over; the engine need not hear of it."""
        task = 0 if isinstance(header, pb.InitialState) else header.task_id
        known = self._run.engine.roster.clients.get(member.id)
        if not task:
            acknowledge(member, 0, pb.Acknowledge.OUTCOME_DUPLICATE)
        elif known is not None and known.last_done == task:
            self.accept(member, task, duplicate=True)
            self._durable.flush()
        else:
            text = f"task {task} is not open for {member.id!r}; it is another's, cancelled or too old"
            self.refuse(member, task, text)

    async def deliver(self, member: Member, header: pb.Update, received: Received) -> None:
        """A worker's update is complete."""
        run, federation = self._run, self._run.federation
        task, record = header.task_id, run.engine.tasks.get(header.task_id)
        run.journal.bytes_received += header.state_bytes
        run.traces.arrived(task, member.id, header.traceparent)
        if member.id not in run.engine.roster:
            self.refuse(member, task, f"{member.id} does not train here")
            return
        if federation is not None and record is not None and record.client == member.id:
            header = checked_update(header)
            result = result_of(header, received, member.curvature)
            try:
                if not math.isclose(header.weight, record.weight, rel_tol=1e-9):
                    raise NumericsError(f"the window is for w_i = {header.weight}, not {record.weight}")
                if header.model_version != record.version:
                    raise NumericsError(f"it starts from {header.model_version}, not from {record.version}")
                usual = self._usual(federation)
                # Who is not guarded and has a length that is known needs no look at the vector.
                if run.is_light(1) or (usual is None and is_usable(result)):
                    federation.check(task, result, usual)
                else:
                    await self._beside.numerics(federation.check, task, result, usual)
            except RoundError:
                pass  # cancelled meanwhile; the engine refuses it below
            except (NumericsError, LayoutError) as error:
                self.spoiled(member, task, error)
                return
            if member.id not in run.engine.roster:
                return  # banned while its update was looked at
            self.results[task] = result
            member.note_update(header)
            member.curvature = result.curvature
        self._handle(UpdateArrived(member.id, task))

    def _usual(self, federation: Federation) -> float | None:
        """How long displacements were of late, where that is compared."""
        if not federation.guarded:
            return None
        return usual_displacement(closed.details for closed in reversed(self._run.journal.rounds))

    def spoiled(self, member: Member, task: int, error: FedecadoError) -> None:
        """An update that cannot be used: its sender is told why, and is free for other work."""
        reason = refused_result(error)
        self.refuse(member, task, str(error), reason, label(error))
        if reason != pb.Acknowledge.REASON_DAMAGED and self.holds(member, task):
            self._handle(TaskFailed(member.id, task))  # a damaged one is sent again

    def accept(self, member: Member, task: int, *, duplicate: bool) -> bool:
        """Take an update, and say so once it is durable; whether it counts, as a second one does not."""
        run, result = self._run, self.results.pop(task, None)
        if duplicate or result is None or run.federation is None:
            run.observer.updated("duplicate")
            run.traces.answered(task, "duplicate")
            self._durable.send(lambda: acknowledge(member, task, pb.Acknowledge.OUTCOME_DUPLICATE))
            return False
        run.federation.accept(task, result)
        run.journal.accepted += 1
        run.observer.updated("accepted")
        run.traces.answered(task, "accepted")
        member.accepted, member.last_round, member.progress = member.accepted + 1, run.engine.round, None
        if member.session is not None:
            member.session.footing.counted(task)
        self._durable.send(
            lambda: acknowledge(member, task, pb.Acknowledge.OUTCOME_ACCEPTED), urgent=not run.is_light(1)
        )
        return True

    def refuse(
        self,
        member: Member,
        task: int,
        message: str,
        reason: "pb.Acknowledge.Reason.ValueType" = pb.Acknowledge.REASON_UNKNOWN_TASK,
        label: str = "unknown_task",
    ) -> None:
        """Do not take an update, and say why."""
        run = self._run
        self.results.pop(task, None)
        member.refused, member.progress = member.refused + 1, None
        run.journal.refused += 1
        run.traces.answered(task, "refused")
        run.observer.updated("refused", label)
        member.blame(pb.Acknowledge.Reason.Name(reason), message, task=task)
        log.warning(
            "refused task %d of %s: %s",
            *(task, member.id, message),
            extra=about(worker=member.id, task=task, round=run.engine.round),
        )
        acknowledge(member, task, pb.Acknowledge.OUTCOME_REFUSED, reason, message)
