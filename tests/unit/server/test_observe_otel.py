"""Rounds and tasks as spans; the ends of a trace that lie in workers are tests/integration's."""

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.context import Context

from fedecado.common.errors import ConfigError
from fedecado.common.tracing import Tracing, from_text, to_text
from fedecado.server.observe.otel import OtelTraces


class Spans:
    """A run that is traced to a file, and what the file holds in the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tracing = Tracing(f"file:{path}", process="test")
        self.tracer = self._tracing.tracer
        self.traces = OtelTraces(self.tracer)

    def read(self) -> dict[str, dict[str, Any]]:
        """By name; the last one of each."""
        self._tracing.close()
        self._tracing.close()
        spans = (json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines())
        return {span["name"]: span for span in spans}


@pytest.fixture
def spans(tmp_path: Path) -> Spans:
    return Spans(tmp_path / "new" / "spans.jsonl")


def trace_of(span: dict[str, Any]) -> str:
    return str(span["context"]["trace_id"])


def test_a_round_is_one_trace_and_its_aggregate_is_linked_to_its_updates(spans: Spans) -> None:
    text = spans.traces.assigned(5, 1, "w1")
    push = spans.tracer.start_span("push", from_text(text))  # what a worker does
    spans.traces.arrived(5, "w1", to_text(push))
    push.end()
    spans.traces.answered(5, "accepted")
    spans.traces.aggregating(1, (5,))
    spans.traces.aggregated(1)
    found = spans.read()
    assert len({trace_of(span) for span in found.values()}) == 1
    parents = {name: span["parent_id"] for name, span in found.items()}
    ids = {span["context"]["span_id"]: name for name, span in found.items()}
    assert {name: parent and ids[parent] for name, parent in parents.items()} == {
        "round": None,
        "assign": "round",
        "push": "assign",
        "take": "push",
        "aggregate": "round",
    }
    (link,) = found["aggregate"]["links"]
    assert link["context"]["span_id"] == found["take"]["context"]["span_id"]
    assert found["take"]["attributes"] == {
        "fedecado.task": 5,
        "fedecado.worker": "w1",
        "fedecado.outcome": "accepted",
    }


@pytest.mark.parametrize("strange", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "foreign"])
def test_a_worker_cannot_put_its_update_into_a_trace_that_it_was_not_given(
    spans: Spans, strange: str
) -> None:
    spans.traces.assigned(5, 1, "w1")
    if strange == "foreign":
        strange = to_text(spans.tracer.start_span("foreign", Context()))
    spans.traces.arrived(5, "w1", strange)
    spans.traces.answered(5, "refused")
    spans.traces.aggregating(1, (5,))
    spans.traces.aggregated(1, failed=True)
    found = spans.read()
    assert trace_of(found["take"]) == trace_of(found["round"])
    assert found["aggregate"]["links"] == [] and found["round"]["status"]["status_code"] == "ERROR"


def test_a_place_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot write traces to .*choose another trace.to"):
        Tracing(f"file:{tmp_path / 'file' / 'spans.jsonl'}")
