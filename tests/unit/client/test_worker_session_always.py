"""Whatever a coordinator says and the line does: the worker's state machine stays in order."""

import itertools
from collections.abc import Callable

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from session_talk import (
    HERE,
    SEND,
    assign,
    connected,
    finished,
    held,
    make,
    receiving,
    running,
    say,
    stopping,
    trained,
    welcome,
)

from fedecado.client.effects import Effect, Send, Start, Stop
from fedecado.client.session import Session
from fedecado.client.work import Work
from fedecado.common.errors import ProtocolError
from fedecado.common.wire import BulkChunk
from fedecado.v1.session_pb2 import (
    Acknowledge,
    Assign,
    Cancel,
    CoordinatorBye,
    CoordinatorMessage,
    Evaluate,
    HeldTaskAnswer,
    Refused,
    RequestInitialState,
)
from fedecado.v1.transfer_pb2 import Trailer

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
