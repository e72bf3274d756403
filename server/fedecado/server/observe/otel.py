"""A trace per round: assign, train, push, take and aggregate, over all processes that had a part in it.

`round` is the root; under it lie `assign`, the worker's `train` and `push`, the coordinator's `take`, and
`aggregate`, which is linked to every update in it: late ones belong to the trace of an earlier round.
"""

from collections.abc import Mapping
from typing import Final, final

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, Tracer, set_span_in_context
from opentelemetry.trace.status import Status, StatusCode

from fedecado.common.tracing import from_text, to_text, trace_id
from fedecado.server.observe.observer import Outcome

REMEMBERED: Final = 100_000
"""Tasks and rounds whose contexts are kept; of more, the oldest are forgotten."""


@final
class OtelTraces:
    """Turns what a run tells into spans."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._rounds: dict[int, Span] = {}
        self._assigned: dict[int, Context] = {}
        self._taking: dict[int, Span] = {}
        self._taken: dict[int, SpanContext] = {}
        self._aggregating: dict[int, Span] = {}

    def assigned(self, task: int, number: int, worker: str) -> str:
        span = self._start("assign", self._round(number), round=number, task=task, worker=worker)
        span.end()
        self._assigned[task] = set_span_in_context(span)
        _trim(self._assigned)
        return to_text(span)

    def arrived(self, task: int, worker: str, traceparent: str) -> None:
        given, told = self._assigned.get(task), from_text(traceparent)
        # A worker may continue the trace that it was given, and no other.
        foreign = given is not None and told is not None and trace_id(told) != trace_id(given)
        parent = given if told is None or foreign else told
        self._taking[task] = self._start("take", parent, task=task, worker=worker)
        _trim(self._taking)

    def answered(self, task: int, outcome: Outcome) -> None:
        span = self._taking.pop(task, None)
        if span is None:
            return
        span.set_attribute("fedecado.outcome", outcome)
        if outcome == "accepted":
            self._assigned.pop(task, None)
            self._taken[task] = span.get_span_context()
            _trim(self._taken)
        span.end()

    def aggregating(self, number: int, tasks: tuple[int, ...]) -> None:
        links = [Link(context) for task in tasks if (context := self._taken.pop(task, None)) is not None]
        self._aggregating[number] = self._tracer.start_span(
            "aggregate",
            self._round(number),
            links=links,
            attributes={"fedecado.round": number, "fedecado.updates": len(tasks)},
        )

    def aggregated(self, number: int, *, failed: bool = False) -> None:
        for span in (self._aggregating.pop(number, None), self._rounds.pop(number, None)):
            if span is not None:
                if failed:
                    span.set_status(Status(StatusCode.ERROR, "the round could not be aggregated"))
                span.end()

    def _round(self, number: int) -> Context:
        if number not in self._rounds:
            self._rounds[number] = self._start("round", None, round=number)
            _trim(self._rounds)
        return set_span_in_context(self._rounds[number])

    def _start(self, name: str, parent: Context | None, **about: str | int) -> Span:
        attributes: Mapping[str, str | int] = {f"fedecado.{key}": value for key, value in about.items()}
        # An empty context, not none: that would be whatever context user code has set.
        return self._tracer.start_span(name, parent or Context(), attributes=attributes)


def _trim(kept: dict[int, object] | dict[int, Span] | dict[int, Context] | dict[int, SpanContext]) -> None:
    while len(kept) > REMEMBERED:
        del kept[next(iter(kept))]
