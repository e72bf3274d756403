"""The worker's state machine, message by message, without a network."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from fedecado.client.effects import Effect, HangUp, Leave, Retry, Send, Start, Stop
from fedecado.client.pace import Pace
from fedecado.client.session import Session
from fedecado.client.work import Failed, Identity, Measured, Profile, Trained, Training, Work
from fedecado.common.enclosed import MOST, enclose
from fedecado.common.errors import ProtocolError
from fedecado.common.layout import Layout, Vector
from fedecado.common.wire import BulkChunk, encode, parse_coordinator_message
from fedecado.v1.session_pb2 import (
    Acknowledge,
    Assign,
    Cancel,
    CoordinatorBye,
    CoordinatorMessage,
    Evaluate,
    HeldTask,
    HeldTaskAnswer,
    Hello,
    Intervals,
    ProtocolVersion,
    Refused,
    RequestInitialState,
    Welcome,
)
from fedecado.v1.transfer_pb2 import Enclosed, Trailer

LAYOUT = Layout.flat(3)
STATE: Vector = np.array([1.0, 2.0, 3.0], "float32")
PACE = Pace(progress=1.0, reconnect=0.1, reconnect_most=5.0)
FINISHED, RUNNING = HeldTask.STATE_FINISHED, HeldTask.STATE_RUNNING
SEND, HERE, UNWANTED = (
    HeldTaskAnswer.VERDICT_SEND,
    HeldTaskAnswer.VERDICT_ALREADY_HERE,
    HeldTaskAnswer.VERDICT_UNWANTED,
)


def make(role: str = "trainer") -> Session:
    identity = Identity("w1", "trainer" if role == "trainer" else "evaluator", incarnation=7)
    return Session(identity, Profile(LAYOUT, STATE, samples=10, curvature=0.5), PACE)


def say(session: Session, content: Message) -> list[Effect]:
    """Have the coordinator send `content`."""
    message = CoordinatorMessage()
    [name] = [f.name for f in message.DESCRIPTOR.fields if f.message_type is content.DESCRIPTOR]
    getattr(message, name).CopyFrom(content)
    return session.received(message)


def transfer(session: Session, vector: Vector = STATE) -> list[Effect]:
    return [effect for data in encode(vector) for effect in session.received(parse_coordinator_message(data))]


def welcome(session: Session, **fields: object) -> list[Effect]:
    given: dict[str, object] = {"protocol": ProtocolVersion(major=1), "run_id": "r1", **fields}
    return say(session, Welcome(**given))  # type: ignore[arg-type]  # checked by protobuf itself


def connect(session: Session, verdict: HeldTaskAnswer.Verdict.ValueType = SEND) -> list[Effect]:
    """A new connection whose welcome says `verdict` of all that is held."""
    answers = [HeldTaskAnswer(task_id=task, verdict=verdict) for task, _ in held(session)]
    return welcome(session, held_tasks=answers)


def held(session: Session) -> list[tuple[int, int]]:
    """Open a new stream: what its Hello lists."""
    return [(item.task_id, item.state) for item in hello(session).held_tasks]


def hello(session: Session) -> Hello:
    [send] = session.opened()
    assert isinstance(send, Send)
    return send.message.hello


def assign(session: Session, task: int = 1, **fields: object) -> list[Effect]:
    header = Assign(task_id=task, model_version=4, weight=2.0, state_bytes=12, **fields)  # type: ignore[arg-type]  # checked by protobuf
    return say(session, header) + transfer(session)


def start(session: Session, task: int = 1) -> Work:
    [effect] = assign(session, task)
    assert isinstance(effect, Start)
    return effect.work


def trained(curvature: float | None = None) -> Trained:
    return Trained(STATE * 2, 0.5, 2.0, 8, 80, 1.5, 0.5, curvature, 0.1)


def kinds(effects: list[Effect]) -> list[str]:
    """Sent messages by the name of their content, other effects by their class."""
    return [
        str(effect.message.WhichOneof("content")) if isinstance(effect, Send) else type(effect).__name__
        for effect in effects
    ]


def connected(role: str = "trainer") -> Session:
    session = make(role)
    connect(session)
    return session


def running() -> Session:
    session = connected()
    start(session)
    return session


def receiving() -> Session:
    session = connected()
    say(session, Assign(task_id=1, weight=1.0, state_bytes=12))
    return session


def finished() -> Session:
    session = connected()
    session.finished(start(session), trained())
    return session


def stopping() -> Session:
    session = running()
    session.stop()
    return session


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


def enclosed_assign(task: int = 1, **changes: object) -> Assign:
    fields: dict[str, object] = {"state_bytes": 12, "state": enclose(STATE), **changes}
    return Assign(task_id=task, model_version=4, weight=2.0, **fields)  # type: ignore[arg-type]  # checked by protobuf


@pytest.mark.parametrize("drift", [None, STATE * 3])
def test_a_task_whose_vectors_are_in_its_header_starts_at_once(drift: Vector | None) -> None:
    session = connected()
    header = enclosed_assign()
    if drift is not None:
        header.drift_bytes = drift.nbytes
        header.drift.CopyFrom(enclose(drift))
    [effect] = say(session, header)
    assert isinstance(effect, Start) and isinstance(effect.work, Training)
    np.testing.assert_array_equal(effect.work.state, STATE)
    assert (effect.work.drift is None) == (drift is None)
    if drift is not None:
        np.testing.assert_array_equal(effect.work.drift, drift)
    assert not session.receiving
    assert effect.work.header.ByteSize() < 40, "the vectors are not kept twice"


def test_a_version_to_measure_may_be_in_its_header() -> None:
    session = connected("evaluator")
    [effect] = say(session, Evaluate(task_id=1, model_version=2, state_bytes=12, state=enclose(STATE)))
    assert isinstance(effect, Start)
    np.testing.assert_array_equal(effect.work.state, STATE)


NAN = np.array([1, math.nan, 2], "float32")


@pytest.mark.parametrize(
    "changes",
    [
        {"state": Enclosed()},
        {"state": enclose(STATE[:2])},
        {"state": enclose(np.ones(4, "float32"))},
        {"state": enclose(NAN)},
        {"state": Enclosed(data=STATE.tobytes(), crc32=1)},
        {"state_bytes": 16},
        {"state_bytes": 1 << 60},
        {"drift_bytes": 12},
        {"drift": enclose(STATE)},
        {"drift_bytes": 12, "drift": enclose(STATE[:2])},
        {"drift_bytes": 12, "drift": enclose(NAN)},
        {"drift_bytes": 12, "drift": Enclosed(data=STATE.tobytes(), crc32=1)},
        {"drift_bytes": 12, "drift": enclose(STATE), "state": None},
    ],
)
def test_a_header_with_bad_vectors_is_a_failed_task_and_the_next_one_is_taken(
    changes: dict[str, Any],
) -> None:
    session = connected()
    assert kinds(say(session, enclosed_assign(**changes))) == ["task_failed"]
    assert not session.receiving and held(session) == []
    connect(session)
    assert kinds(say(session, enclosed_assign(2))) == ["Start"]


@pytest.mark.parametrize(("minor", "one"), [(0, False), (1, False), (2, True), (3, True)])
def test_an_update_is_in_its_header_if_the_coordinator_takes_that(minor: int, one: bool) -> None:
    session = make()
    session.opened()
    welcome(session, protocol=ProtocolVersion(major=1, minor=minor))
    [send] = session.finished(start(session), trained())
    assert isinstance(send, Send)
    assert (send.vector is None) == send.message.update.HasField("state") == one
    assert (send.message.update.state_bytes, send.task) == (12, 1)
    if one:
        assert send.message.update.state == enclose(STATE * 2)


def test_an_update_goes_as_the_coordinator_takes_it_that_is_there_now() -> None:
    session = make()
    session.opened()
    welcome(session, protocol=ProtocolVersion(major=1, minor=2))
    session.finished(start(session), trained())
    [send] = connect(session)  # one of version 1.0, say after a step back
    assert isinstance(send, Send) and send.vector is not None
    assert not send.message.update.HasField("state")


def test_long_updates_are_never_in_their_headers() -> None:
    layout = Layout.flat(MOST // 4 + 1)
    session = Session(Identity("w1", "trainer", 7), Profile(layout, np.zeros(layout.size, "f4"), 10), PACE)
    session.opened()
    welcome(session, protocol=ProtocolVersion(major=1, minor=2))
    state = np.ones(layout.size, "float32")
    say(session, Assign(task_id=1, weight=2.0, state_bytes=layout.nbytes))
    [effect] = transfer(session, state)
    assert isinstance(effect, Start)
    [send] = session.finished(effect.work, replace(trained(), state=state))
    assert isinstance(send, Send) and send.vector is state and not send.message.update.HasField("state")


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


STATES: dict[str, Callable[[], Session]] = {
    "connected": connected,
    "receiving": receiving,
    "running": running,
    "finished": finished,
    "stopping": stopping,
}
ANYTHING: list[Message] = [
    Assign(task_id=1, weight=1.0, state_bytes=12),
    Evaluate(task_id=1, state_bytes=12),
    Cancel(task_id=1),
    Cancel(task_id=9),
    Acknowledge(task_id=1, outcome=Acknowledge.OUTCOME_ACCEPTED),
    Acknowledge(task_id=9),
    Acknowledge(),
    RequestInitialState(),
    Trailer(),
    Refused(),
    CoordinatorBye(),
]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("content", ANYTHING, ids=lambda m: type(m).__name__)
def test_any_message_in_any_state_leaves_a_session_that_can_reconnect(state: str, content: Message) -> None:
    session = STATES[state]()
    say(session, content)
    session.received(BulkChunk(0, memoryview(b"1234")))
    session.received(CoordinatorMessage())  # content of a later protocol
    ids = [task for task, _ in held(session)]
    assert ids in ([], [1])
    if state != "stopping":
        welcome(session, held_tasks=[HeldTaskAnswer(task_id=task, verdict=SEND) for task in ids])
        assert session.welcomed


@pytest.mark.parametrize("content", ANYTHING, ids=lambda m: type(m).__name__)
def test_before_the_welcome_only_refusal_and_goodbye_are_allowed(content: Message) -> None:
    session = make()
    session.opened()
    if isinstance(content, Refused | CoordinatorBye):
        say(session, content)
        assert session.ending is not None
    else:
        with pytest.raises(ProtocolError, match="before its welcome"):
            say(session, content)


def test_a_second_welcome_and_a_task_without_a_number_are_violations() -> None:
    with pytest.raises(ProtocolError, match="second welcome"):
        welcome(connected())
    with pytest.raises(ProtocolError, match="id 0"):
        say(connected(), Assign(state_bytes=12))


class Exchange:
    """A worker, an honest coordinator, and a line that may break between any two of their moves.

    Messages under way are lost when it breaks. The coordinator stores each update once, acknowledges
    it, and answers for held tasks by what it has stored.
    """

    def __init__(self) -> None:
        self.session = make()
        self.ids = itertools.count(1)
        self.given: set[int] = set()
        self.stored: list[int] = []
        self.trainings: list[int] = []
        self.training: list[Work] = []
        self.to_coordinator: list[Send] = []
        self.to_worker: list[Message] = []

    def apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.to_coordinator.append(effect)
            elif isinstance(effect, Start):
                self.trainings.append(effect.work.header.task_id)
                self.training.append(effect.work)
            elif isinstance(effect, Stop):
                self.training = [work for work in self.training if work is not effect.work]

    def connect(self) -> None:
        self.drop()
        listed = [task for task, _ in held(self.session)]
        answers = [
            HeldTaskAnswer(task_id=task, verdict=HERE if task in self.stored else SEND) for task in listed
        ]
        self.apply(welcome(self.session, held_tasks=answers))

    def drop(self) -> None:
        self.session.closed()
        self.to_coordinator, self.to_worker = [], []

    def assign(self) -> None:
        if self.session.welcomed:
            task = next(self.ids)
            self.given.add(task)
            self.apply(assign(self.session, task))

    def finish(self) -> None:
        if self.training:
            self.apply(self.session.finished(self.training.pop(0), trained()))

    def deliver(self) -> None:
        if self.to_coordinator:
            update = self.to_coordinator.pop(0).message.update
            fresh = update.task_id not in self.stored
            if fresh:
                self.stored.append(update.task_id)
            outcome = Acknowledge.OUTCOME_ACCEPTED if fresh else Acknowledge.OUTCOME_DUPLICATE
            self.to_worker.append(Acknowledge(task_id=update.task_id, outcome=outcome))

    def answer(self) -> None:
        if self.to_worker:
            self.apply(say(self.session, self.to_worker.pop(0)))


MOVES = ["connect", "drop", "assign", "finish", "deliver", "answer"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(MOVES), max_size=40))
def test_whatever_the_line_does_each_task_is_trained_once_and_arrives(moves: list[str]) -> None:
    exchange = Exchange()
    for move in moves:
        getattr(exchange, move)()
    exchange.connect()
    for move in ("finish", "deliver", "answer"):
        for _ in moves:
            getattr(exchange, move)()
    assert sorted(exchange.trainings) == sorted(exchange.given)
    assert sorted(exchange.stored) == sorted(exchange.given)
    assert held(exchange.session) == []
