"""A worker's words before anything keeps them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.common.errors import ProtocolError
from fedecado.server.coordinator import untrusted
from fedecado.v1 import session_pb2 as pb


@given(st.text(max_size=400))
def test_a_line_is_one_printable_line_of_bounded_length(text: str) -> None:
    assert untrusted.line(text).isprintable()
    assert len(untrusted.line(text)) <= untrusted.NAME_CHARACTERS


def test_a_failure_cannot_forge_lines_in_its_type_or_fill_the_memory() -> None:
    kept = untrusted.checked_failure(
        pb.TaskFailed(
            task_id=3, exception_type="E\nroot: all is well", message="a\x1b[2J", traceback="x" * 10**6
        )
    )
    assert kept.task_id == 3
    assert "\n" not in kept.exception_type
    assert "\x1b" not in kept.message
    assert len(kept.traceback) == untrusted.TRACEBACK_CHARACTERS


@pytest.mark.parametrize(
    "hello",
    [
        pb.Hello(samples=11),
        pb.Hello(curvature=1e300),
        pb.Hello(held_tasks=[pb.HeldTask(task_id=i) for i in range(1000)]),
    ],
)
def test_claims_beyond_reason_are_refused(hello: pb.Hello) -> None:
    with pytest.raises(ProtocolError):
        untrusted.checked_hello(hello, most_samples=10)


def test_what_is_kept_of_a_hello_is_small() -> None:
    kept = untrusted.checked_hello(
        pb.Hello(worker_id="w", layout_json="x" * 10**6, description="y" * 10**6, device="cpu\n"), 10
    )
    assert kept.ByteSize() < 1000
    assert (kept.worker_id, kept.device) == ("w", "cpu ")


def test_an_evaluation_may_not_bring_thousands_of_metrics() -> None:
    with pytest.raises(ProtocolError):
        untrusted.checked_evaluation(pb.Evaluation(metrics={str(i): 1.0 for i in range(1000)}))
    kept = untrusted.checked_evaluation(pb.Evaluation(metrics={"loss\n" + "x" * 999: 1.0}))
    assert all(len(name) <= 200 and name.isprintable() for name in kept.metrics)


def test_figures_for_people_that_are_no_numbers_are_left_out() -> None:
    kept = untrusted.checked_update(
        pb.Update(task_id=4, window=0.5, loss_before=math.inf, loss_after=0.5, training_seconds=math.nan)
    )
    assert not kept.HasField("loss_before")
    assert (kept.loss_after, kept.training_seconds, kept.window) == (0.5, 0.0, 0.5)
    assert not untrusted.checked_progress(pb.Progress(task_id=1, loss=math.nan)).HasField("loss")
