"""The worker's state machine, message by message, without a network."""

import math
from dataclasses import replace

import numpy as np
import pytest
from session_talk import (
    FINISHED,
    HERE,
    LAYOUT,
    PACE,
    RUNNING,
    SEND,
    STATE,
    UNWANTED,
    assign,
    connect,
    connected,
    finished,
    held,
    hello,
    kinds,
    make,
    receiving,
    running,
    say,
    start,
    trained,
    transfer,
    welcome,
)

from fedecado.client.effects import HangUp, Leave, Retry, Send, Start, Stop
from fedecado.client.pace import Pace
from fedecado.client.work import Failed, Measured, Training
from fedecado.common.wire import encode, parse_coordinator_message
from fedecado.v1.session_pb2 import (
    Acknowledge,
    Assign,
    Cancel,
    CoordinatorBye,
    Evaluate,
    HeldTaskAnswer,
    Intervals,
    ProtocolVersion,
    Refused,
    RequestInitialState,
)
from fedecado.v1.transfer_pb2 import Trailer


def test_hello_tells_everything_about_the_worker() -> None:
    said = hello(make())
    assert (said.worker_id, said.incarnation, said.connection, said.run_id) == ("w1", 7, 1, "")
    assert (said.layout_json, said.layout_digest) == (LAYOUT.to_json(), LAYOUT.digest)
    assert (said.samples, said.curvature, list(said.held_tasks)) == (10, 0.5, [])


def test_every_hello_has_a_higher_connection_number_and_the_last_run() -> None:
    session = make()
    assert [hello(session).connection for _ in range(3)] == [1, 2, 3]
    welcome(session, run_id="r9")
    assert hello(session).run_id == "r9"


def test_a_training_goes_from_assign_to_update_to_acknowledgement() -> None:
    session = connected()
    work = start(session)
    np.testing.assert_array_equal(work.state, STATE)
    [send] = session.finished(work, trained(curvature=0.25))
    assert isinstance(send, Send)
    update = send.message.update
    assert (update.task_id, update.model_version, update.window, update.weight) == (1, 4, 0.5, 2.0)
    assert (update.curvature, update.steps, update.loss_before, update.loss_after) == (0.25, 8, 1.5, 0.5)
    assert (update.layout_digest, update.state_bytes) == (LAYOUT.digest, 12)
    assert session.wants(send)
    assert say(session, Acknowledge(task_id=1, outcome=Acknowledge.OUTCOME_ACCEPTED)) == []
    assert not session.wants(send)
    again = hello(session)
    assert not again.held_tasks
    assert again.curvature == 0.25


def test_state_and_drift_arrive_one_after_the_other() -> None:
    session = connected()
    header = Assign(task_id=1, weight=1.0, state_bytes=12, drift_bytes=12)
    assert say(session, header) + transfer(session) == []
    [effect] = transfer(session, -STATE)
    assert isinstance(effect, Start)
    assert isinstance(effect.work, Training)
    assert effect.work.drift is not None
    np.testing.assert_array_equal(effect.work.state, STATE)
    np.testing.assert_array_equal(effect.work.drift, -STATE)


def test_an_evaluator_measures_and_a_trainer_does_not() -> None:
    order = Evaluate(task_id=1, model_version=4, state_bytes=12)
    judge = connected("evaluator")
    [effect] = say(judge, order) + transfer(judge)
    assert isinstance(effect, Start)
    [send] = judge.finished(effect.work, Measured({"accuracy": 0.5}, 10, 0.1))
    assert isinstance(send, Send)
    assert dict(send.message.evaluation.metrics) == {"accuracy": 0.5}
    assert held(judge) == [(1, FINISHED)]
    trainer = connected()
    assert kinds(say(trainer, order) + transfer(trainer)) == ["task_failed"]
    assert kinds(assign(connected("evaluator"))) == ["task_failed"]


def test_the_initial_state_is_sent_when_asked_and_again_when_damaged() -> None:
    session = connected()
    [send] = say(session, RequestInitialState())
    assert isinstance(send, Send)
    assert send.message.initial_state.state_bytes == 12
    assert send.vector is STATE
    assert session.wants(send)
    damaged = Acknowledge(outcome=Acknowledge.OUTCOME_REFUSED, reason=Acknowledge.REASON_DAMAGED)
    assert kinds(say(session, damaged)) == ["initial_state"]
    assert say(session, Acknowledge(outcome=Acknowledge.OUTCOME_DUPLICATE)) == []


def test_a_failure_is_sent_once_and_forgotten_because_nobody_acknowledges_it() -> None:
    session = connected()
    assert kinds(session.finished(start(session), Failed("ValueError", "no", "trace"))) == ["task_failed"]
    assert held(session) == []


def test_a_failure_while_disconnected_waits_for_the_next_welcome() -> None:
    session = connected()
    work = start(session)
    session.closed()
    assert session.finished(work, Failed("ValueError", "no", "trace")) == []
    assert kinds(connect(session)) == ["task_failed"]
    assert held(session) == []


def test_training_goes_on_through_a_lost_connection_and_is_sent_when_done() -> None:
    session = connected()
    work = start(session)
    session.closed()
    assert held(session) == [(1, RUNNING)]
    assert session.finished(work, trained()) == []  # between Hello and Welcome
    answer = HeldTaskAnswer(task_id=1, verdict=SEND)
    assert kinds(welcome(session, held_tasks=[answer])) == ["update"]


@pytest.mark.parametrize(("verdict", "effects"), [(SEND, ["update"]), (HERE, ["Stop"]), (UNWANTED, ["Stop"])])
def test_the_welcome_decides_on_a_finished_task(
    verdict: HeldTaskAnswer.Verdict.ValueType, effects: list[str]
) -> None:
    session = finished()
    assert held(session) == [(1, FINISHED)]
    assert kinds(connect(session, verdict)) == effects
    assert held(session) == ([(1, FINISHED)] if verdict == SEND else [])


def test_a_held_task_without_an_answer_is_dropped_and_stopped() -> None:
    session = running()
    session.opened()
    assert kinds(welcome(session, run_id="another run")) == ["Stop"]
    assert held(session) == []


def test_a_half_received_assignment_is_lost_with_its_connection() -> None:
    session = receiving()
    assert held(session) == []
    welcome(session)
    assert transfer(session) == []  # what belongs to no header is skipped
    start(session)


def test_cancel_stops_a_running_task_and_nothing_more_is_said_about_it() -> None:
    session = connected()
    work = start(session)
    assert say(session, Cancel(task_id=1)) == [Stop(work)]
    assert session.finished(work, trained()) == []
    assert session.progressed(work, 1, 2, None) == []
    assert held(session) == []


def test_cancel_ends_what_is_half_received_or_half_sent() -> None:
    session = receiving()
    assert say(session, Cancel(task_id=1)) == []
    assert transfer(session) == []
    [send] = session.finished(start(session, 2), trained())
    assert isinstance(send, Send)
    say(session, Cancel(task_id=2))
    assert not session.wants(send)


def test_a_new_task_may_take_the_number_of_a_dropped_one_of_another_run() -> None:
    session = connected()
    old = start(session)
    session.opened()
    welcome(session, run_id="r2")
    new = start(session)
    assert session.finished(old, trained()) == []
    assert kinds(session.finished(new, trained())) == ["update"]


def test_a_task_that_is_held_is_not_started_again() -> None:
    assert assign(running()) == []
    assert assign(finished()) == []


def test_a_new_header_takes_the_place_of_an_unfinished_one() -> None:
    session = receiving()
    start(session, task=2)
    assert held(session) == [(2, RUNNING)]


@pytest.mark.parametrize(
    "content",
    [
        Assign(task_id=1, weight=1.0, state_bytes=16),
        Assign(task_id=1, weight=1.0, state_bytes=12, drift_bytes=4),
        Assign(task_id=1, weight=1.0),
    ],
)
def test_an_assignment_of_another_size_is_a_failed_task_and_its_chunks_are_skipped(content: Assign) -> None:
    session = connected()
    assert kinds(say(session, content) + transfer(session)) == ["task_failed"]
    start(session, task=2)


def test_a_damaged_or_infinite_state_is_a_failed_task() -> None:
    session = receiving()
    assert kinds(transfer(session, np.array([1, math.inf, 2], "float32"))) == ["task_failed"]
    say(session, Assign(task_id=2, weight=1.0, state_bytes=12))
    chunk, _ = encode(STATE)
    session.received(parse_coordinator_message(chunk))
    assert kinds(say(session, Trailer(length=12, crc32=1))) == ["task_failed"]
    assert held(session) == []


@pytest.mark.parametrize("outcome", Acknowledge.Outcome.values())
@pytest.mark.parametrize("reason", Acknowledge.Reason.values())
def test_a_result_is_kept_after_no_answer_but_damaged(
    outcome: Acknowledge.Outcome.ValueType, reason: Acknowledge.Reason.ValueType
) -> None:
    session = finished()
    effects = say(session, Acknowledge(task_id=1, outcome=outcome, reason=reason))
    damaged = outcome == Acknowledge.OUTCOME_REFUSED and reason == Acknowledge.REASON_DAMAGED
    assert kinds(effects) == (["update"] if damaged else [])
    assert held(session) == ([(1, FINISHED)] if damaged else [])


def test_a_refusal_while_still_training_stops_it() -> None:
    session = running()
    too_old = Acknowledge(task_id=1, outcome=Acknowledge.OUTCOME_REFUSED, reason=Acknowledge.REASON_TOO_OLD)
    assert kinds(say(session, too_old)) == ["Stop"]


def test_progress_is_sent_only_while_welcome() -> None:
    session = connected()
    work = start(session)
    [send] = session.progressed(work, 3, 9, 0.5)
    assert isinstance(send, Send)
    progress = send.message.progress
    assert (progress.task_id, progress.steps_done, progress.steps_total, progress.loss) == (1, 3, 9, 0.5)
    session.closed()
    assert session.progressed(work, 4, 9, None) == []


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (CoordinatorBye.REASON_FINISHED, 0),
        (CoordinatorBye.REASON_DRAINED, 0),
        (CoordinatorBye.REASON_REPLACED, 1),
    ],
)
def test_some_goodbyes_end_the_worker(reason: CoordinatorBye.Reason.ValueType, code: int) -> None:
    session = running()
    say(session, CoordinatorBye(reason=reason, message="because"))
    assert isinstance(session.ending, Leave)
    assert session.ending.code == code
    assert "because" in session.ending.reason


@pytest.mark.parametrize("reason", [CoordinatorBye.REASON_SHUTTING_DOWN, 0, 99])
def test_after_other_goodbyes_the_worker_keeps_what_it_holds_and_returns(reason: int) -> None:
    session = finished()
    say(session, CoordinatorBye(reason=reason))  # type: ignore[arg-type]  # also numbers of later protocols
    assert isinstance(session.ending, Retry)
    assert held(session) == [(1, FINISHED)]
    assert session.ending is None


@pytest.mark.parametrize(
    ("refused", "ending"),
    [
        (Refused(reason=Refused.REASON_LAYOUT, message="wrong model"), Leave(1, "wrong model")),
        (Refused(reason=Refused.REASON_WORKER_ID_TAKEN), Leave(1, "worker id taken")),
        (Refused(reason=Refused.REASON_FULL, retry=True, retry_after_seconds=9), Retry("full", 9.0)),
        (Refused(retry=True, message="later", retry_after_seconds=math.nan), Retry("later", 0.0)),
        (Refused(reason=99, retry=True, retry_after_seconds=-1), Retry("unknown", 0.0)),  # type: ignore[arg-type]  # of a later protocol
    ],
)
def test_a_refused_worker_leaves_or_retries_as_it_is_told(refused: Refused, ending: Leave | Retry) -> None:
    session = make()
    session.opened()
    say(session, refused)
    told = replace(ending, reason=f"the coordinator refused this worker: {ending.reason}")
    assert session.ending == told


def test_another_protocol_or_layout_in_the_welcome_ends_the_worker() -> None:
    for fields in ({"protocol": ProtocolVersion(major=2)}, {"layout_digest": "0" * 64}):
        session = make()
        session.opened()
        assert welcome(session, **fields) == []
        assert isinstance(session.ending, Leave)
        assert session.ending.code == 1
        assert not session.welcomed


def test_the_welcome_may_set_the_pace_and_zero_leaves_it() -> None:
    session = make()
    session.opened()
    welcome(session, intervals=Intervals(progress_seconds=3, reconnect_seconds=8))
    assert session.pace == Pace(3.0, 8.0, 8.0)
    session.opened()
    welcome(session, intervals=Intervals(progress_seconds=math.nan, reconnect_max_seconds=-1))
    assert session.pace == PACE


def test_stop_says_goodbye_after_what_is_finished_and_stops_what_is_not() -> None:
    session = connected()
    [upload] = session.finished(start(session), trained())
    work = start(session, task=2)
    stop, bye, hang_up = session.stop()
    assert stop == Stop(work)
    assert isinstance(upload, Send)
    assert session.wants(upload)
    assert kinds([bye]) == ["bye"]
    assert isinstance(hang_up, HangUp)
    assert session.ending == Leave(0, "stopped")
    assert session.stop() == []


def test_stop_without_a_coordinator_only_stops() -> None:
    session = running()
    session.closed()
    assert kinds(session.stop()) == ["Stop"]
