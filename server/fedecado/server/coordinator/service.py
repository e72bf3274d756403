"""The Session service: admits workers and passes on what their streams bring."""

import asyncio
import logging
import math
import re
import time
from typing import TYPE_CHECKING, Any, final

import grpc

from fedecado.common.errors import (
    FedecadoError,
    IdentityError,
    LayoutError,
    ProtocolError,
    QuotaError,
    VersionError,
)
from fedecado.common.layout import Layout
from fedecado.common.logs import about
from fedecado.common.packed import NUMBERS
from fedecado.common.timeouts import Timeouts
from fedecado.common.wire import parse_worker_message, serialize_message
from fedecado.server.coordinator.about import About
from fedecado.server.coordinator.exclusion import refusal
from fedecado.server.coordinator.inbox import Arrival, Header, Inbox, Received, Spoiled, Unwanted
from fedecado.server.coordinator.members import Member
from fedecado.server.coordinator.peers import Peer
from fedecado.server.coordinator.post import verdict
from fedecado.server.coordinator.quotas import Meter, Quotas
from fedecado.server.coordinator.refusals import BANNED, refused_session, session_label
from fedecado.server.coordinator.run import Run
from fedecado.server.coordinator.session import Session, envelope
from fedecado.server.coordinator.untrusted import (
    checked_evaluation,
    checked_failure,
    checked_hello,
    checked_progress,
    line,
)
from fedecado.v1 import PROTOCOL_MAJOR, PROTOCOL_MINOR
from fedecado.v1 import session_pb2 as pb

if TYPE_CHECKING:
    from fedecado.server.coordinator.guard import Guard

log = logging.getLogger(__name__)

WORKER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")


class Refusal(Exception):  # noqa: N818 - carries an answer, it is no fault
    """The stream ends with this answer; metrics call it `label`."""

    def __init__(self, answer: pb.Refused, label: str | None = None) -> None:
        super().__init__(answer.message)
        self.answer, self.label = answer, label or session_label(answer)


@final
class SessionService:
    """One `session` call per connected worker."""

    def __init__(
        self,
        run: Run,
        timeouts: Timeouts,
        about: About,
        guard: "Guard | None" = None,
        quotas: Quotas | None = None,
    ) -> None:
        self._run, self._timeouts, self._about, self._guard = run, timeouts, about, guard
        self._quotas = quotas or Quotas()

    def handler(self) -> grpc.GenericRpcHandler:
        """What to add to a server: bulk chunks pass without becoming message objects."""
        method = grpc.stream_stream_rpc_method_handler(
            self.session, request_deserializer=parse_worker_message, response_serializer=serialize_message
        )
        return grpc.method_handlers_generic_handler("fedecado.v1.SessionService", {"Session": method})

    async def session(self, _: Any, context: Any) -> None:
        """A worker's whole visit."""
        try:
            with self._quotas.stream() as meter:
                await self._visit(context, meter)
        except QuotaError as error:
            answer = refused_session(error)
            self._run.observer.refused(session_label(answer))
            await context.write(envelope(answer))

    async def _visit(self, context: Any, meter: Meter) -> None:
        def wanted(header: Header) -> bool:
            return session.member is not None and self._run.wants(session.member, header)

        inbox = Inbox(
            lambda: self._run.layout,
            wanted=wanted,
            quotas=self._quotas,
            land=self._run.durable.land,
            start=self._run.intake.start_of,
            formats=self._run.upload_formats,
        )
        session = Session(context, self._timeouts, inbox, meter, self._quotas.limits.slowest)
        try:
            session.peer = self._identify(context)
            member = await self._admit(session, context.peer())
        except Refusal as refusal:
            log.warning("refused %s: %s", context.peer(), refusal)
            self._run.observer.refused(refusal.label)
            await context.write(envelope(refusal.answer))
            return
        try:
            await self._converse(session, member)
        finally:
            inbox.close()
            if member.session is session:
                log.info("%s is gone", member.id, extra=about(worker=member.id))
                self._run.left(member)

    def _identify(self, context: Any) -> Peer | None:
        try:
            return None if self._guard is None else self._guard.identify(context)
        except IdentityError as error:
            raise Refusal(refused_session(error)) from error

    async def _converse(self, session: Session, member: Member) -> None:
        """Read and write until either side has said its last word."""
        try:
            async with asyncio.TaskGroup() as group:
                reader = group.create_task(self._read(session, member))
                await session.write_all()
                reader.cancel()
        except* TimeoutError:
            _blame(member, ProtocolError("it does not take what it is sent"))

    async def _read(self, session: Session, member: Member) -> None:
        try:
            async for arrival in session.arrivals():
                if member.session is not session:
                    return  # replaced, dropped or banned: what is still on its way does not count
                await self._arrived(member, arrival)
                del arrival  # a vector, perhaps: it must not stay until the next one is here
        except (ProtocolError, QuotaError) as error:
            _blame(member, error)
            answer = refused_session(error)
            self._run.observer.refused(session_label(answer))
            # Not raised: that would end the writer before it has sent this.
            session.close(answer)
        finally:
            session.close()

    async def _arrived(self, member: Member, arrival: Arrival) -> None:
        run = self._run
        match arrival:
            case Received(pb.Update() as header):
                await run.intake.deliver(member, header, arrival)
            case Received(pb.InitialState(), vector):
                run.initial(member, vector)
            case Spoiled(pb.Update() as header, error):
                run.intake.spoiled(member, header.task_id, error)
            case Unwanted(header):
                run.intake.unwanted(member, header)
            case Spoiled(_, error):
                raise ProtocolError(f"the initial state cannot be used: {error}")
            case pb.Progress():
                member.progress = checked_progress(arrival)
            case pb.Evaluation():
                run.measured(member, checked_evaluation(arrival))
            case pb.TaskFailed():
                run.failed(member, checked_failure(arrival))
            case pb.WorkerBye():
                words = line(arrival.message) or "stopped"
                log.info("%s says goodbye: %s", member.id, words, extra=about(worker=member.id))
        member.seen = time.time()

    async def _admit(self, session: Session, peer: str) -> Member:
        """Read Hello, check it, and welcome the worker."""
        try:
            message = await session.read(self._timeouts.answer)
            if not isinstance(message, pb.WorkerMessage) or message.WhichOneof("content") != "hello":
                raise ProtocolError("the first message must be Hello")
            hello = message.hello
            layout = _check_hello(hello)
            _check_identity(hello, session.peer)
            if hello.worker_id in self._run.engine.banned:
                raise Refusal(refusal(hello.worker_id, self._run.engine.banned[hello.worker_id]), BANNED)
            hello = checked_hello(hello, self._quotas.limits.samples)
            self._quotas.require_sane(layout.nbytes)
            self._quotas.visit(hello.worker_id, self._run.members)
            self._take_over(hello)
            self._run.agree(layout)
            member = self._run.members.admit(hello, session, peer)
        except FedecadoError as error:
            raise Refusal(refused_session(error)) from error
        session.member = member
        engine, same_run = self._run.engine, hello.run_id == self._run.files.run_id
        verdicts = [verdict(engine, member.id, held.task_id, same_run=same_run) for held in hello.held_tasks]
        session.send(self._welcome(member, verdicts))
        if self._run.engine.finished or self._run.closing:
            # Not a refusal: whoever comes back after the end has done its part and exits with success.
            session.close(self._run.goodbye())
            return member
        log.info(
            "%s joins from %s with %d samples (%s)",
            *(member.id, peer, hello.samples, hello.device),
            extra=about(worker=member.id, address=peer, samples=hello.samples),
        )
        wanted = tuple(v.task_id for v in verdicts if v.verdict == pb.HeldTaskAnswer.VERDICT_SEND)
        self._run.joined(member, wanted)
        return member

    def _take_over(self, hello: pb.Hello) -> None:
        """End an older stream of the same process; refuse a second process under one id."""
        member = self._run.members.by_id.get(hello.worker_id)
        if member is None or member.session is None:
            return
        if member.hello.incarnation == hello.incarnation and hello.connection > member.hello.connection:
            member.session.close(pb.CoordinatorBye(reason=pb.CoordinatorBye.REASON_REPLACED))
            self._run.left(member)
            return
        text = (
            f"another process is connected as {hello.worker_id!r} from {member.address}; "
            "give each worker its own id (if it was just restarted, the old connection ends soon)"
        )
        raise Refusal(
            pb.Refused(
                reason=pb.Refused.REASON_WORKER_ID_TAKEN,
                message=text,
                retry=True,
                retry_after_seconds=self._timeouts.keepalive,
            )
        )

    def _welcome(self, member: Member, verdicts: list[pb.HeldTaskAnswer]) -> pb.Welcome:
        run = self._run
        weight = run.engine.roster.weight(member.id) if member.id in run.engine.roster else 1.0
        return pb.Welcome(
            protocol=pb.ProtocolVersion(major=PROTOCOL_MAJOR, minor=PROTOCOL_MINOR),
            run_id=run.files.run_id,
            run_name=self._about.name,
            software_version=self._about.software,
            worker_index=member.index,
            weight=weight,
            layout_digest="" if run.layout is None else run.layout.digest,
            model_version=0 if run.federation is None else run.federation.version,
            held_tasks=verdicts,
            upload_formats=[NUMBERS[name] for name in run.upload_formats],
        )


def _blame(member: Member, error: FedecadoError) -> None:
    member.blame(type(error).__name__, str(error))
    log.warning("session of %s ended: %s", member.id, error, extra=about(worker=member.id))


def _check_identity(hello: pb.Hello, peer: Peer | None) -> None:
    """With certificates, a worker is who its certificate says."""
    if peer is not None and hello.worker_id != peer.name:
        raise IdentityError(
            f"your certificate is for {peer.name!r}, you say you are {hello.worker_id[:140]!r}; "
            "set worker.id to it"
        )


def _check_hello(hello: pb.Hello) -> Layout:
    if hello.protocol.major != PROTOCOL_MAJOR:
        raise VersionError(
            f"you speak protocol {hello.protocol.major}, this coordinator {PROTOCOL_MAJOR}; "
            "install the same fedecado version on both sides"
        )
    if not WORKER_ID.fullmatch(hello.worker_id):
        raise ProtocolError(
            f"worker id {hello.worker_id[:140]!r}: use 1 to 128 letters, digits and . _ : @ -, "
            "a letter or digit first"
        )
    if hello.role not in (pb.ROLE_TRAINER, pb.ROLE_EVALUATOR):
        raise ProtocolError(f"unknown role {hello.role}")
    if hello.role == pb.ROLE_TRAINER and not 1 <= hello.samples < 1 << 53:
        raise ProtocolError(f"a trainer with {hello.samples} samples; it needs at least one")
    if hello.HasField("curvature") and not (math.isfinite(hello.curvature) and hello.curvature >= 0):
        raise ProtocolError(f"curvature {hello.curvature}; it must be finite, 0 or more")
    if not hello.incarnation:
        raise ProtocolError("no incarnation; it must be a random number, not 0")
    layout = Layout.from_json(hello.layout_json)
    if layout.digest != hello.layout_digest:
        raise LayoutError(f"the layout's digest is {layout.digest}, Hello says {hello.layout_digest[:70]!r}")
    return layout
