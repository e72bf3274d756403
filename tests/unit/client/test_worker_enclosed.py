"""Short vectors within their headers, as the worker's state machine takes and sends them."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from session_talk import (
    PACE,
    STATE,
    connect,
    connected,
    held,
    kinds,
    make,
    say,
    start,
    trained,
    transfer,
    welcome,
)

from fedecado.client.effects import Send, Start
from fedecado.client.session import Session
from fedecado.client.work import Identity, Profile, Training
from fedecado.common.enclosed import MOST, enclose
from fedecado.common.layout import Layout, Vector
from fedecado.v1.session_pb2 import (
    Assign,
    Evaluate,
    ProtocolVersion,
)
from fedecado.v1.transfer_pb2 import Enclosed


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
    assert (send.encloses, send.message.update.state_bytes, send.task) == (one, 12, 1)
    assert send.vector is not None
    np.testing.assert_array_equal(send.vector, STATE * 2)


def test_an_update_goes_as_the_coordinator_takes_it_that_is_there_now() -> None:
    session = make()
    session.opened()
    welcome(session, protocol=ProtocolVersion(major=1, minor=2))
    session.finished(start(session), trained())
    [send] = connect(session)  # one of version 1.0, say after a step back
    assert isinstance(send, Send) and send.vector is not None and not send.encloses


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
    assert isinstance(send, Send) and send.vector is state and not send.encloses
