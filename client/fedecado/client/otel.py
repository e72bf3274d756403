"""A worker's part of a task's trace: `train`, then `push` until the coordinator has answered."""

from typing import final

from opentelemetry.context import Context
from opentelemetry.trace import Span, set_span_in_context
from opentelemetry.trace.status import Status, StatusCode

from fedecado.client.observer import Answer
from fedecado.client.work import Failed, Outcome, Trained, Training, Work
from fedecado.common.tracing import Tracing, from_text, to_text
from fedecado.v1.session_pb2 import WorkerMessage


@final
class WorkerTraces:
    """Spans of the tasks that the worker holds; evaluations have none."""

    def __init__(self, tracing: Tracing, worker: str) -> None:
        self._tracing, self._worker = tracing, worker
        self._training: dict[int, Span] = {}
        self._pushing: dict[int, Span] = {}

    def connected(self, connected: bool) -> None: ...

    def started(self, work: Work) -> None:
        if isinstance(work, Training):
            parent = from_text(work.header.traceparent) or Context()
            self._training[work.header.task_id] = self._start("train", parent, work.header.task_id)

    def finished(self, work: Work, outcome: Outcome) -> None:
        span = self._training.get(work.header.task_id)
        if span is None:
            return
        if isinstance(outcome, Trained):
            span.set_attributes({"fedecado.steps": outcome.steps, "fedecado.window": outcome.window})
        if isinstance(outcome, Failed):
            span.set_status(Status(StatusCode.ERROR, f"{outcome.type}: {outcome.message}"))
        span.end()

    def sending(self, work: Work, message: WorkerMessage) -> None:
        task = work.header.task_id
        trained = self._training.get(task)
        if trained is None:
            return
        if message.WhichOneof("content") != "update":
            self.dropped(task)  # a failure is not answered
            return
        if (again := self._pushing.pop(task, None)) is not None:
            again.end()
        self._pushing[task] = span = self._start("push", set_span_in_context(trained), task)
        message.update.traceparent = to_text(span)

    def answered(self, task: int, answer: Answer) -> None:
        span = self._pushing.get(task)
        if span is not None:
            span.set_attribute("fedecado.outcome", answer)
        self.dropped(task)

    def dropped(self, task: int) -> None:
        for spans in (self._pushing, self._training):
            if (span := spans.pop(task, None)) is not None and span.is_recording():
                span.end()

    def close(self) -> None:
        for task in {*self._training, *self._pushing}:
            self.dropped(task)
        self._tracing.close()

    def _start(self, name: str, parent: Context, task: int) -> Span:
        about: dict[str, str | int] = {"fedecado.task": task, "fedecado.worker": self._worker}
        return self._tracing.tracer.start_span(name, parent, attributes=about)
