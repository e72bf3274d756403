"""A worker's words, cut to size and made fit for a log and a screen before anything keeps them.

Numbers that decide something are refused when they make no sense; what is only for people is shortened.
"""

import math
from typing import Final

from fedecado.common.errors import ProtocolError
from fedecado.server.algorithms.updates import LARGEST
from fedecado.v1 import session_pb2 as pb

NAME_CHARACTERS: Final = 200
MESSAGE_CHARACTERS: Final = 2_000
TRACEBACK_CHARACTERS: Final = 10_000
HELD_TASKS: Final = 256
"""A worker has one task at a time; more than a few are nonsense."""
METRICS: Final = 100


def line(text: str, most: int = NAME_CHARACTERS) -> str:
    """Text on one line, without what could forge a log line or repaint a terminal."""
    return "".join(char if char.isprintable() else " " for char in text[:most])


def lines(text: str, most: int = TRACEBACK_CHARACTERS) -> str:
    """The same for text that may have several lines."""
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text[:most])


def checked_hello(hello: pb.Hello, most_samples: int) -> pb.Hello:
    """A Hello to keep: its layout, which the run has once, is left out."""
    if hello.samples > most_samples:
        raise ProtocolError(
            f"{hello.samples} samples exceed limits.samples = {most_samples}, the most that is believed"
        )
    if hello.HasField("curvature") and hello.curvature > LARGEST:
        raise ProtocolError(f"curvature {hello.curvature:g}; it must be at most {LARGEST:g}")
    if len(hello.held_tasks) > HELD_TASKS:
        raise ProtocolError(f"{len(hello.held_tasks)} held tasks; at most {HELD_TASKS} are looked at")
    kept = pb.Hello()
    kept.CopyFrom(hello)
    kept.ClearField("layout_json")
    for name in ("software_version", "device", "description", "run_id"):
        setattr(kept, name, line(getattr(hello, name)))
    return kept


def checked_failure(failure: pb.TaskFailed) -> pb.TaskFailed:
    """A failure to show."""
    return pb.TaskFailed(
        task_id=failure.task_id,
        exception_type=line(failure.exception_type),
        message=lines(failure.message, MESSAGE_CHARACTERS),
        traceback=lines(failure.traceback),
    )


def checked_evaluation(answer: pb.Evaluation) -> pb.Evaluation:
    """Measurements to average and to show; ProtocolError if there are too many."""
    if len(answer.metrics) > METRICS:
        raise ProtocolError(f"{len(answer.metrics)} metrics; an evaluation may have {METRICS}")
    kept = pb.Evaluation()
    kept.CopyFrom(answer)
    kept.ClearField("metrics")
    for name, value in answer.metrics.items():
        kept.metrics[line(name)] = value
    kept.samples = min(answer.samples, 1 << 53)
    return kept


def checked_update(header: pb.Update) -> pb.Update:
    """An update's header whose figures for people are numbers."""
    # An absent loss reads as 0.
    losses = math.isfinite(header.loss_before) and math.isfinite(header.loss_after)
    if losses and 0 <= header.training_seconds < 1e9 and header.steps <= 1 << 53:
        return header
    kept = pb.Update()
    kept.CopyFrom(header)
    for name in ("loss_before", "loss_after"):
        if kept.HasField(name) and not math.isfinite(getattr(kept, name)):
            kept.ClearField(name)
    if not 0 <= kept.training_seconds < 1e9:
        kept.training_seconds = 0.0
    kept.steps = min(kept.steps, 1 << 53)
    return kept


def checked_progress(progress: pb.Progress) -> pb.Progress:
    """Progress whose loss, if there is one, is a number."""
    if progress.HasField("loss") and not math.isfinite(progress.loss):
        kept = pb.Progress()
        kept.CopyFrom(progress)
        kept.ClearField("loss")
        return kept
    return progress
