"""A worker's side of the protocol: messages and events in, effects out; no I/O, clock or thread.

A task is held from the moment its assignment is complete until its outcome is acknowledged, through
any number of connections; `Hello` lists what is held and `Welcome` decides on each. Chunks that
belong to no accepted header are skipped, as the protocol wants it of refused transfers.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, final

from fedecado.client import replies
from fedecado.client.effects import Effect, Ending, Forget, HangUp, Leave, Retry, Send, Start, Stop
from fedecado.client.footing import Footing
from fedecado.client.incoming import Incoming, enclosed_work
from fedecado.client.observer import Observer, Observers
from fedecado.client.pace import Pace
from fedecado.client.work import Failed, Identity, Outcome, Profile, Trained, Training, Work
from fedecado.common.enclosed import is_short, is_understood
from fedecado.common.errors import FedecadoError, ProtocolError
from fedecado.common.logs import Sparingly, about, identify
from fedecado.common.names import Format
from fedecado.common.wire import BulkChunk
from fedecado.v1.session_pb2 import (
    Acknowledge,
    Assign,
    Cancel,
    CoordinatorBye,
    CoordinatorMessage,
    Evaluate,
    HeldTask,
    HeldTaskAnswer,
    Refused,
    Welcome,
    WorkerBye,
    WorkerMessage,
)
from fedecado.v1.transfer_pb2 import Trailer

logger = logging.getLogger(__name__)

_FIRST: Final = ("welcome", "refused", "bye", None)
"""What may come before the welcome; None stands for messages of a later protocol."""


@dataclass(slots=True)
class _Held:
    work: Work
    outcome: Outcome | None = None
    kept: bool = False
    """Whether the outcome is on disk, too."""


@final
class Session:
    """The state machine of one worker, over all its connections; attributes are there to be read."""

    def __init__(
        self,
        identity: Identity,
        profile: Profile,
        pace: Pace,
        observer: Observer | None = None,
        upload: Format = "full",
        *,
        makes_drifts: bool = False,
    ) -> None:
        self.pace = pace
        self.upload: Format = upload
        """The format of updates, as agreed with the coordinator."""
        self._wanted_upload = upload
        self._encloses = False
        """Whether the coordinator takes short updates within their headers,"""
        self._makes_drifts = makes_drifts
        """and whether drifts are made here where that can be."""
        self._observer: Observer = observer or Observers()
        self.welcomed = False
        self.ending: Ending | None = None
        """How this connection ends, once that is decided."""
        self._own_pace = pace
        self._identity, self._profile = identity, profile
        self._curvature = profile.curvature
        self._connections = 0
        self._run_id = ""
        self._held: dict[int, _Held] = {}
        self._incoming: Incoming | None = None
        self._footing: Footing | None = None
        """Of the last task that counted in this session, where the next drift may follow from it."""
        self._stopping = False
        self._sparingly = Sparingly()
        self._handlers: dict[str, Callable[[CoordinatorMessage], list[Effect]]] = {
            "welcome": lambda message: self._welcome(message.welcome),
            "request_initial_state": lambda _: [replies.initial_state(profile)],
            "assign": lambda message: self._header(message.assign),
            "evaluate": lambda message: self._header(message.evaluate),
            "trailer": lambda message: self._trailer(message.trailer),
            "acknowledge": lambda message: self._acknowledge(message.acknowledge),
            "cancel": lambda message: self._cancel(message.cancel),
            "refused": lambda message: self._refused(message.refused),
            "bye": lambda message: self._bye(message.bye),
        }

    @property
    def run_id(self) -> str:
        """The run that held tasks belong to; empty before the first welcome."""
        return self._run_id

    def restore(self, run_id: str, work: Work, outcome: Outcome) -> None:
        """Hold what an earlier process finished in a run and kept on disk; before the first connection."""
        self._run_id = run_id
        self._held[work.header.task_id] = _Held(work, outcome, kept=True)

    @property
    def receiving(self) -> bool:
        """Whether a transfer is under way to here."""
        return self._incoming is not None

    def wants(self, send: Send) -> bool:
        """Whether the rest of an upload is still of use."""
        return not send.task or send.task in self._held

    def opened(self) -> list[Effect]:
        """A new stream is there."""
        self.closed()
        self._connections += 1
        state = HeldTask.State
        held = [
            HeldTask(task_id=task, state=state.STATE_FINISHED if item.outcome else state.STATE_RUNNING)
            for task, item in self._held.items()
        ]
        hello = replies.hello(self._identity, self._profile, self._curvature)
        hello.connection, hello.run_id = self._connections, self._run_id
        hello.makes_drifts = self._makes_drifts
        hello.held_tasks.extend(held)
        return [Send(WorkerMessage(hello=hello))]

    def closed(self) -> None:
        """The stream is gone; what is half received is lost, what is held is kept."""
        self.welcomed, self.ending, self._incoming, self._footing = False, None, None, None
        self._observer.connected(False)

    def stop(self) -> list[Effect]:
        """The operator wants the worker to end; finished results may still go out first."""
        if self._stopping:
            return []
        self._stopping, self._incoming = True, None
        self.ending = Leave(0, "stopped")
        running = [task for task, item in self._held.items() if item.outcome is None]
        stops: list[Effect] = [Stop(self._held.pop(task).work) for task in running]
        for task in running:
            self._observer.dropped(task)
        if not self.welcomed:
            return stops
        bye = WorkerBye(reason=WorkerBye.REASON_STOPPED, message="stopped by its operator or scheduler")
        return [*stops, Send(WorkerMessage(bye=bye)), HangUp()]

    def finished(self, work: Work, outcome: Outcome, *, kept: bool = False) -> list[Effect]:
        """Work has come to its end, and may be on disk; ignored if nobody wants its outcome any more."""
        task = work.header.task_id
        held = self._held.get(task)
        if held is None or held.work is not work:
            return _forgotten(task, _Held(work, outcome, kept))
        held.outcome, held.kept = outcome, kept
        if isinstance(outcome, Trained) and outcome.curvature is not None:
            self._curvature = outcome.curvature
        self._observer.finished(work, outcome)
        level = logging.ERROR if isinstance(outcome, Failed) else self._sparingly.level()
        if logger.isEnabledFor(level):
            seconds = getattr(outcome, "seconds", None)
            extra = replies.about_work(work, seconds=seconds)
            logger.log(level, replies.describe(task, outcome), extra=extra)
        return self._deliver(task) if self.welcomed and not self._stopping else []

    def progressed(self, work: Work, done: int, total: int, loss: float | None) -> list[Effect]:
        """Work has come so far."""
        held = self._held.get(work.header.task_id)
        if not self.welcomed or held is None or held.work is not work:
            return []
        return [Send(replies.progress(work.header.task_id, done, total, loss))]

    def received(self, message: CoordinatorMessage | BulkChunk) -> list[Effect]:
        """The coordinator's next message; raises ProtocolError where none such may stand."""
        if isinstance(message, BulkChunk):
            return self._chunk(message)
        kind = message.WhichOneof("content")
        if self._stopping and kind != "acknowledge":
            return []
        if not self.welcomed and kind not in _FIRST:
            raise ProtocolError(f"the coordinator sent {kind} before its welcome")
        handle = self._handlers.get(kind or "")
        return handle(message) if handle else []  # a message of a later protocol is ignored

    def _welcome(self, welcome: Welcome) -> list[Effect]:
        if self.welcomed:
            raise ProtocolError("the coordinator sent a second welcome")
        problem = replies.mismatch(welcome, self._profile.layout.digest)
        if problem:
            self.ending = Leave(1, problem)
            return []
        self.welcomed, self._run_id = True, welcome.run_id
        self._observer.connected(True)
        identify(run=welcome.run_name or welcome.run_id)
        self.pace = self._own_pace.overridden(welcome.intervals)
        self.upload = replies.usable_format(welcome, self._wanted_upload)
        self._encloses = is_understood(welcome.protocol)
        logger.info(
            "enrolled as %s (number %d) in run %s, weight %.3g, model version %d",
            *(self._identity.worker_id, welcome.worker_index, welcome.run_name or welcome.run_id),
            *(welcome.weight, welcome.model_version),
        )
        answers = {answer.task_id: answer for answer in welcome.held_tasks}
        return [effect for task in list(self._held) for effect in self._resume(task, answers)]

    def _resume(self, task: int, answers: Mapping[int, HeldTaskAnswer]) -> list[Effect]:
        answer = answers.get(task, HeldTaskAnswer())
        match answer.verdict:
            case HeldTaskAnswer.VERDICT_SEND:
                return self._deliver(task) if self._held[task].outcome else []
            case HeldTaskAnswer.VERDICT_ALREADY_HERE:
                return self._drop(task, "already arrived before the connection broke", counted=True)
        return self._drop(task, "no longer wanted", answer.reason)

    def _header(self, header: Assign | Evaluate) -> list[Effect]:
        task = header.task_id
        if not task:
            raise ProtocolError("the coordinator sent a task with id 0, which means none")
        self._incoming = None
        footing, self._footing = self._footing, None
        if task in self._held:
            logger.warning(
                "task %d was assigned twice; going on with the first", task, extra=about(task=task)
            )
            return []
        try:
            if isinstance(header, Evaluate) != (self._identity.role == "evaluator"):
                raise ProtocolError(f"task {task} is not for {self._identity.role}s")
            work = enclosed_work(header, self._profile.layout, footing)
            if work is None:
                self._incoming = Incoming(header, self._profile.layout, footing)
                return []
        except FedecadoError as error:
            return self._reject(task, error)
        return self._begin(work)

    def _chunk(self, chunk: BulkChunk) -> list[Effect]:
        if self._incoming is not None:
            try:
                self._incoming.add(chunk)
            except FedecadoError as error:
                return self._reject(self._incoming.header.task_id, error)
        return []

    def _trailer(self, trailer: Trailer) -> list[Effect]:
        if self._incoming is None:
            return []
        task = self._incoming.header.task_id
        try:
            work = self._incoming.finish(trailer)
        except FedecadoError as error:
            return self._reject(task, error)
        return [] if work is None else self._begin(work)

    def _begin(self, work: Work) -> list[Effect]:
        """All of a task has arrived."""
        task, version = work.header.task_id, work.header.model_version
        self._incoming, self._held[task] = None, _Held(work)
        self._observer.started(work)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("task %d started from version %d", task, version, extra=replies.about_work(work))
        return [Start(work)]

    def _reject(self, task: int, error: FedecadoError) -> list[Effect]:
        """Tell the coordinator that a task did not arrive as it should."""
        self._incoming = None
        logger.error("task %d cannot be taken: %s", task, error, extra=about(task=task))
        return [Send(replies.failure(task, Failed.of(error)))]

    def _deliver(self, task: int) -> list[Effect]:
        """Send an outcome. A failure is not acknowledged, so it is forgotten at once."""
        held = self._held[task]
        assert held.outcome is not None  # noqa: S101 - for the type checker; callers see to it
        if isinstance(held.outcome, Failed):
            del self._held[task]
        send = replies.result(held.work, held.outcome, self._profile.layout.digest, encloses=self._encloses)
        self._observer.sending(held.work, send.message)
        return [send]

    def _acknowledge(self, answer: Acknowledge) -> list[Effect]:
        task = answer.task_id
        what = f"task {task}" if task else "the initial state"
        level, verdict, text = replies.verdict(answer)
        logger.log(level, "%s %s", what, text, extra=about(task=task, outcome=verdict))
        if task:
            self._observer.answered(task, verdict)
        if answer.outcome == Acknowledge.OUTCOME_REFUSED and answer.reason == Acknowledge.REASON_DAMAGED:
            if not task:
                return [replies.initial_state(self._profile)]
            held = self._held.get(task)
            return self._deliver(task) if held and held.outcome else []
        held = self._held.pop(task, None)
        if held is None:
            return []
        if held.outcome is None:
            return [Stop(held.work)]
        if counted := verdict in ("accepted", "duplicate"):
            self._footing = self._left_of(held)
        return _forgotten(task, held, counted=counted)

    def _left_of(self, held: _Held) -> Footing | None:
        """What the next drift may follow from."""
        work, outcome = held.work, held.outcome
        if not isinstance(work, Training) or not isinstance(outcome, Trained) or not self._makes_drifts:
            return None
        if work.drift is None or is_short(work.drift):  # a short one is always sent
            return None
        return Footing(work, outcome, self._profile.layout)

    def _cancel(self, cancel: Cancel) -> list[Effect]:
        return self._drop(cancel.task_id, "cancelled", cancel.reason)

    def _drop(self, task: int, what: str, reason: str = "", *, counted: bool = False) -> list[Effect]:
        if self._incoming is not None and self._incoming.header.task_id == task:
            self._incoming = None
        held = self._held.pop(task, None)
        if held is None:
            return []
        self._observer.dropped(task)
        logger.info("task %d: %s%s", task, what, f" ({reason})" if reason else "", extra=about(task=task))
        return [Stop(held.work), *_forgotten(task, held, counted=counted)]

    def _refused(self, refused: Refused) -> list[Effect]:
        text = f"the coordinator refused this worker: {replies.why(refused)}"
        after = refused.retry_after_seconds
        if refused.retry:
            self.ending = Retry(text, after if 0 < after < math.inf else 0.0)
        else:
            self.ending = Leave(1, text)
        return []

    def _bye(self, bye: CoordinatorBye) -> list[Effect]:
        said = f": {bye.message}" if bye.message else ""
        match bye.reason:
            case CoordinatorBye.REASON_FINISHED:
                self.ending = Leave(0, f"the run is finished{said}")
                return [effect for task, held in self._held.items() for effect in _forgotten(task, held)]
            case CoordinatorBye.REASON_DRAINED:
                self.ending = Leave(0, f"the coordinator needs this worker no more{said}")
            case CoordinatorBye.REASON_REPLACED:
                self.ending = Leave(
                    1,
                    f"another worker took over the id {self._identity.worker_id!r}{said}; "
                    "give every worker an id of its own",
                )
            case CoordinatorBye.REASON_SHUTTING_DOWN:
                self.ending = Retry(f"the coordinator is going down{said}")
            case _:
                self.ending = Retry(f"the coordinator ended this session{said}")
        return []


def _forgotten(task: int, held: _Held, *, counted: bool = False) -> list[Effect]:
    packed = isinstance(held.outcome, Trained) and held.outcome.packed is not None
    return [Forget(task, counted)] if held.kept or packed else []
