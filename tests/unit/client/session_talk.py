"""What a session is told and what it answers: the other side of the tests of the state machine."""

import numpy as np
from google.protobuf.message import Message

from fedecado.client.effects import Effect, Send, Start
from fedecado.client.pace import Pace
from fedecado.client.session import Session
from fedecado.client.work import Identity, Profile, Trained, Work
from fedecado.common.layout import Layout, Vector
from fedecado.common.wire import encode, parse_coordinator_message
from fedecado.v1.session_pb2 import (
    Assign,
    CoordinatorMessage,
    HeldTask,
    HeldTaskAnswer,
    Hello,
    ProtocolVersion,
    Welcome,
)

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
