"""A worker's session under a coordinator gone mad: effects or a ProtocolError, and it can always go on."""

import math
from typing import Any

from hostile_messages import LAYOUT, STATE, frames, fuzz
from hypothesis import given
from hypothesis import strategies as st

from fedecado.client.effects import Effect, Leave, Retry, Send, Start
from fedecado.client.pace import Pace
from fedecado.client.session import Session
from fedecado.client.work import Failed, Identity, Measured, Profile, Trained, Training, Work
from fedecado.common.enclosed import enclose
from fedecado.common.errors import ProtocolError
from fedecado.common.wire import parse_coordinator_message
from fedecado.v1 import session_pb2 as pb

WELCOME = pb.CoordinatorMessage(
    welcome=pb.Welcome(protocol=pb.ProtocolVersion(major=1), layout_digest=LAYOUT.digest)
).SerializeToString()
ASSIGN = pb.CoordinatorMessage(
    assign=pb.Assign(task_id=3, weight=1.0, state_bytes=LAYOUT.nbytes)
).SerializeToString()
ENCLOSED = pb.CoordinatorMessage(
    assign=pb.Assign(task_id=5, weight=1.0, state_bytes=LAYOUT.nbytes, state=enclose(STATE))
).SerializeToString()
EVALUATE = pb.CoordinatorMessage(
    evaluate=pb.Evaluate(task_id=4, state_bytes=LAYOUT.nbytes)
).SerializeToString()

steps = st.lists(
    st.sampled_from(["open", "close", "finish", "fail", "stop", WELCOME, ASSIGN, ENCLOSED, EVALUATE])
    | frames(pb.CoordinatorMessage),
    max_size=14,
)


@fuzz(0.2)
@given(st.sampled_from(["trainer", "evaluator"]), steps)
def test_whatever_comes_the_session_stays_usable(role: Any, script: list[str | bytes]) -> None:
    session = Session(Identity("w1", role, 7), Profile(LAYOUT, STATE, samples=3), Pace(1.0, 0.1, 5.0))
    session.opened()
    started: list[Work] = []
    for step in script:
        effects: list[Effect] = []
        try:
            if isinstance(step, bytes):
                effects = session.received(parse_coordinator_message(step))
            else:
                effects = happen(session, step, started)
        except ProtocolError:
            session.closed()
            session.opened()
        for effect in effects:
            if isinstance(effect, Start):
                started.append(effect.work)
            elif isinstance(effect, Send):
                effect.message.SerializeToString()
        assert all(work.state.size == LAYOUT.size for work in started)
        assert session.ending is None or isinstance(session.ending, Leave | Retry)
        if isinstance(session.ending, Retry):
            assert 0 <= session.ending.after < math.inf
        assert 0 < session.pace.reconnect < math.inf


def happen(session: Session, step: str, started: list[Work]) -> list[Effect]:
    if step == "open":
        return session.opened()
    if step == "close":
        session.closed()
    if step == "stop":
        return session.stop()
    if step in ("finish", "fail") and started:
        work = started[-1]
        if step == "fail":
            return session.finished(work, Failed("E", "m", "t"))
        if isinstance(work, Training):
            return session.finished(work, Trained(STATE, 0.1, 1.0, 1, 1, None, None, None, 0.1))
        return session.finished(work, Measured({"loss": 1.0}, 1, 0.1))
    return []
