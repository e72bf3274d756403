"""What goes out to workers, as parcels for their sessions."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final, final

from fedecado.common import enclosed
from fedecado.common.layout import Vector
from fedecado.common.wire import Frames, encode
from fedecado.server.algorithms import Assignment
from fedecado.server.coordinator.members import Member
from fedecado.server.coordinator.outbox import Parcel
from fedecado.server.coordinator.session import envelope
from fedecado.server.federation import Offer
from fedecado.server.rounds import Engine
from fedecado.v1 import session_pb2 as pb

_AFTER_SINCE: Final = 3
"""The minor version whose workers know that a part of the drift is added when the window is over."""


@dataclass(frozen=True)
class Suggestions:
    """What workers are told beside their tasks; each decides for itself."""

    rate: float | None = None
    epochs: int | None = None
    batch_size: int | None = None
    sensitivity_every: int = 0
    """Ask for a new curvature every so many accepted updates; 0 never."""

    @cached_property
    def hints(self) -> pb.Hints:
        return pb.Hints(rate=self.rate, epochs=self.epochs, batch_size=self.batch_size)

    def refresh(self, accepted: int) -> bool:
        """Whether a worker with so many accepted updates is to measure its curvature again."""
        return bool(self.sensitivity_every and accepted and accepted % self.sensitivity_every == 0)


@final
class Version:
    """A version of the model as it goes out, each form made once for all workers."""

    def __init__(self, number: int, state: Vector) -> None:
        self.number, self._state = number, state

    @cached_property
    def frames(self) -> Frames:
        """The messages of a transfer."""
        return Frames(self._state)

    @cached_property
    def enclosed(self) -> enclosed.Parts:
        """The field of an assignment."""
        return enclosed.field(pb.Assign.STATE_FIELD_NUMBER, self._state)


def assignment(
    offer: Offer,
    number: int,
    version: Version,
    suggestions: Suggestions,
    member: Member,
    traceparent: str = "",
) -> tuple[Parcel, int]:
    """A task: its header, the version in a form that workers share, this worker's drift."""
    hello, encloses = member.hello, _encloses(offer.state, member)
    given = offer.assignment if hello.protocol.minor >= _AFTER_SINCE else offer.assignment.at_once()
    change = None if encloses or not hello.makes_drifts else _change(offer, given, member)
    drift = None if change is not None else given.kept
    header = pb.Assign(
        task_id=offer.task,
        model_version=offer.version,
        round=number,
        weight=offer.weight,
        pull=given.pull,
        state_bytes=offer.state.nbytes,
        drift_bytes=0 if drift is None else drift.nbytes,
        drift_change=change,
        drift_after=0.0 if given.kept is None else given.after,
        hints=suggestions.hints,
        refresh_curvature=suggestions.refresh(member.accepted),
        traceparent=traceparent,
    )
    parcel: Parcel
    if encloses:
        parcel = _enclosing(header, version, given)
    else:
        own = () if drift is None else encode(drift, given.divisor)
        parcel = chain((envelope(header),), version.frames, own)
    return parcel, header.state_bytes + header.drift_bytes


def _change(offer: Offer, given: Assignment, member: Member) -> pb.DriftChange | None:
    """How the worker makes its drift by itself, if it can; what it has from now on is noted."""
    if given.kept is None or member.session is None:
        return None
    footing = member.session.footing
    change = footing.change(offer.follows, given.divisor)
    footing.gave(offer.task, given.divisor, sent=change is None)
    return change


def _enclosing(header: pb.Assign, version: Version, given: Assignment) -> Iterator[bytes]:
    """The one message of a short task; made when it is written, so that nobody waits for the others'."""
    short = given.drift
    own = () if short is None else (enclosed.field(pb.Assign.DRIFT_FIELD_NUMBER, short),)
    yield enclosed.with_fields(pb.CoordinatorMessage.ASSIGN_FIELD_NUMBER, header, version.enclosed, *own)


def examination(task: int, version: int, state: Vector, member: Member) -> Parcel:
    """A version to measure."""
    header = pb.Evaluate(task_id=task, model_version=version, state_bytes=state.nbytes)
    if _encloses(state, member):
        header.state.CopyFrom(enclosed.enclose(state))
        return (envelope(header),)
    return chain((envelope(header),), encode(state))


def _encloses(state: Vector, member: Member) -> bool:
    """Whether a state goes to this worker within its header."""
    return enclosed.is_short(state) and enclosed.is_understood(member.hello.protocol)


def acknowledge(
    member: Member,
    task: int,
    outcome: "pb.Acknowledge.Outcome.ValueType",
    reason: "pb.Acknowledge.Reason.ValueType" = pb.Acknowledge.REASON_UNSPECIFIED,
    message: str = "",
) -> None:
    """Say what became of a result; a worker that is away asks again when it is back."""
    if member.session is None:
        return
    answer = pb.Acknowledge(task_id=task, outcome=outcome)
    if reason or message:  # most have neither
        answer.reason, answer.message = reason, message
    member.session.send(answer)


def verdict(engine: Engine, worker: str, task: int, *, same_run: bool) -> pb.HeldTaskAnswer:
    """What is to become of a task that a worker brings back."""
    answer, record, known = pb.HeldTaskAnswer, engine.tasks.get(task), engine.roster.clients.get(worker)
    if not same_run:
        return answer(task_id=task, verdict=answer.VERDICT_UNWANTED, reason="it belongs to another run")
    if record is not None and record.client == worker and record.phase != "ready":
        return answer(task_id=task, verdict=answer.VERDICT_SEND)
    if known is not None and known.last_done == task:
        return answer(task_id=task, verdict=answer.VERDICT_ALREADY_HERE)
    return answer(task_id=task, verdict=answer.VERDICT_UNWANTED, reason="it was cancelled or is too old")
