"""The messages a worker sends, made from plain values, and its log lines about them."""

import logging
from typing import Any

from fedecado.client.effects import Send
from fedecado.client.observer import Answer
from fedecado.client.work import Failed, Identity, Measured, Outcome, Profile, Trained, Work
from fedecado.common.enclosed import is_short
from fedecado.common.logs import about
from fedecado.common.names import COMPACT, Format
from fedecado.common.packed import NUMBERS
from fedecado.v1 import PROTOCOL_MAJOR, PROTOCOL_MINOR
from fedecado.v1.session_pb2 import (
    Acknowledge,
    Assign,
    Evaluation,
    Hello,
    InitialState,
    Progress,
    ProtocolVersion,
    Refused,
    Role,
    TaskFailed,
    Update,
    Welcome,
    WorkerMessage,
)

logger = logging.getLogger(__name__)


def hello(identity: Identity, profile: Profile, curvature: float | None) -> Hello:
    """What is the same in every Hello of a process, but for the curvature."""
    return Hello(
        protocol=ProtocolVersion(major=PROTOCOL_MAJOR, minor=PROTOCOL_MINOR),
        worker_id=identity.worker_id,
        incarnation=identity.incarnation,
        role=Role.ROLE_TRAINER if identity.role == "trainer" else Role.ROLE_EVALUATOR,
        software_version=identity.software,
        layout_json=profile.layout.to_json(),
        layout_digest=profile.layout.digest,
        samples=profile.samples,
        curvature=curvature,
        device=profile.device,
        description=identity.description,
    )


def initial_state(profile: Profile) -> Send:
    header = InitialState(layout_digest=profile.layout.digest, state_bytes=profile.initial.nbytes)
    return Send(WorkerMessage(initial_state=header), profile.initial)


def progress(task: int, done: int, total: int, loss: float | None) -> WorkerMessage:
    return WorkerMessage(progress=Progress(task_id=task, steps_done=done, steps_total=total, loss=loss))


def failure(task: int, failed: Failed) -> WorkerMessage:
    return WorkerMessage(
        task_failed=TaskFailed(
            task_id=task,
            exception_type=failed.type,
            message=failed.message,
            traceback=failed.traceback,
        )
    )


def result(work: Work, outcome: Outcome, digest: str, *, encloses: bool = False) -> Send:
    """What is sent for work that has come to its end; `encloses` puts a short vector into its header."""
    task = work.header.task_id
    match outcome:
        case Trained():
            sent = outcome.state if outcome.packed is None else outcome.packed.payload
            message = WorkerMessage(update=_update(work, outcome, digest, sent.nbytes))
            return Send(message, sent, task, encloses and is_short(sent))
        case Measured():
            evaluation = Evaluation(
                task_id=task,
                model_version=work.header.model_version,
                metrics=outcome.metrics,
                samples=outcome.samples,
                seconds=outcome.seconds,
            )
            return Send(WorkerMessage(evaluation=evaluation), task=task)
        case Failed():
            return Send(failure(task, outcome))


def _update(work: Work, trained: Trained, digest: str, nbytes: int) -> Update:
    return Update(
        task_id=work.header.task_id,
        model_version=work.header.model_version,
        window=trained.window,
        weight=trained.weight,
        curvature=trained.curvature,
        steps=trained.steps,
        samples_seen=trained.samples_seen,
        loss_before=trained.loss_before,
        loss_after=trained.loss_after,
        layout_digest=digest,
        state_bytes=nbytes,
        training_seconds=trained.seconds,
        format=NUMBERS["full" if trained.packed is None else trained.packed.format],
    )


def describe(task: int, outcome: Outcome) -> str:
    """The log line about an outcome."""
    match outcome:
        case Trained():
            text = f"finished {outcome.steps} steps in {outcome.seconds:.2f} s"
            if outcome.loss_before is not None and outcome.loss_after is not None:
                text += f", loss {outcome.loss_before:.4g} -> {outcome.loss_after:.4g}"
        case Measured():
            scores = ", ".join(f"{name} {value:.4g}" for name, value in outcome.metrics.items())
            text = f"measured {scores} in {outcome.seconds:.2f} s"
        case Failed():
            text = f"failed: {outcome.type}: {outcome.message}\n{outcome.traceback}"
    return f"task {task} {text}"


def mismatch(welcome: Welcome, digest: str) -> str:
    """Why this worker cannot take part, in words; empty if it can. `digest` is of its layout."""
    if welcome.protocol.major != PROTOCOL_MAJOR:
        return (
            f"the coordinator speaks protocol {welcome.protocol.major}, this worker {PROTOCOL_MAJOR}; "
            "install the same version of fedecado on both"
        )
    if welcome.layout_digest and welcome.layout_digest != digest:
        return (
            f"the run's layout is {welcome.layout_digest[:12]}, this worker's {digest[:12]}; "
            "all peers must build the same model"
        )
    return ""


def usable_format(welcome: Welcome, wanted: Format) -> Format:
    """The format to send updates in: what this worker wants, if the coordinator takes it."""
    if wanted == "full" or NUMBERS[wanted] in welcome.upload_formats:
        return wanted
    names = [name for name in COMPACT if NUMBERS[name] in welcome.upload_formats]
    logger.warning(
        "the coordinator (fedecado %s) does not take updates in %s, so they go in full; compact formats that "
        "it takes: %s (its coordinator.upload_formats)",
        *(welcome.software_version or "of an unknown version", wanted, ", ".join(names) or "none"),
    )
    return "full"


def about_work(work: Work, **more: Any) -> dict[str, Any]:
    """What a log line about a piece of work is about."""
    header = work.header
    number = {"round": header.round} if isinstance(header, Assign) else {}
    return about(task=header.task_id, version=header.model_version, **number, **more)


def verdict(answer: Acknowledge) -> tuple[int, Answer, str]:
    """Level of the log line about an acknowledgement, what it says, and the text."""
    match answer.outcome:
        case Acknowledge.OUTCOME_ACCEPTED:
            return logging.DEBUG, "accepted", "accepted"
        case Acknowledge.OUTCOME_DUPLICATE:
            return logging.INFO, "duplicate", "was there before"
    return logging.WARNING, "refused", f"refused: {why(answer)}"


def why(message: Acknowledge | Refused) -> str:
    """The coordinator's words, or else the name of its reason; a later protocol may have more of them."""
    if message.message:
        return message.message
    enum = Acknowledge.Reason if isinstance(message, Acknowledge) else Refused.Reason
    names = {number: name for name, number in enum.items()}
    return names.get(message.reason, "REASON_UNKNOWN").removeprefix("REASON_").replace("_", " ").lower()
