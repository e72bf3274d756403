"""A drift that follows from the last task: what it comes to, when it can be made, and what is let go."""

import gc
import math
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from session_talk import PACE, connected, held, hello, kinds, say, trained, transfer, welcome

from fedecado.client.effects import Start
from fedecado.client.footing import PIECE, Footing
from fedecado.client.session import Session
from fedecado.client.work import Identity, Profile, Trained, Training
from fedecado.common.enclosed import MOST
from fedecado.common.errors import ProtocolError
from fedecado.common.formats import decode, encode
from fedecado.common.layout import Layout, Vector
from fedecado.common.names import COMPACT, Compact
from fedecado.v1.session_pb2 import (
    Acknowledge,
    Assign,
    Cancel,
    DriftChange,
    HeldTaskAnswer,
)

SIZE = MOST // 4 + 1
LAYOUT = Layout.flat(SIZE)
CHANGE = DriftChange(task_id=1, keep=0.5, toward=3.0, along=2.0)


def numbers(seed: int, size: int = SIZE) -> Vector:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def ended(state: Vector) -> Trained:
    return replace(trained(), state=state)


def expected(start: Vector, drift: Vector, end: Vector, central: Vector) -> Vector:
    return 0.5 * drift + 3.0 * (central - start) - 2.0 * (end - start)


@pytest.mark.parametrize("size", [1, PIECE, 2 * PIECE + 7])
def test_the_next_drift_is_made_of_the_last_one_and_the_way_of_client_and_centre(size: int) -> None:
    start, drift, end, central = (numbers(seed, size) for seed in range(4))
    wanted = expected(start, drift, end, central)
    work = Training(Assign(task_id=1), start, drift)
    footing = Footing(work, ended(end), Layout.flat(size))
    np.testing.assert_allclose(footing.follow(CHANGE)(central), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("format", COMPACT)
def test_of_a_compact_update_what_the_coordinator_has_of_it_counts(format: Compact) -> None:
    start, drift, central = numbers(0), numbers(1), numbers(3)
    packed = encode(format, LAYOUT, start, start + 0.01 * numbers(2))
    wanted = expected(start, drift, decode(packed, LAYOUT, start), central)
    outcome = replace(ended(np.empty(0, np.float32)), packed=packed)
    footing = Footing(Training(Assign(task_id=1), start, drift), outcome, LAYOUT)
    np.testing.assert_allclose(footing.follow(CHANGE)(central), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (DriftChange(task_id=2, keep=1.0), "task 2"),
        (DriftChange(task_id=1, keep=math.nan), "not finite"),
        (DriftChange(task_id=1, toward=math.inf), "not finite"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(change: DriftChange, words: str) -> None:
    footing = Footing(Training(Assign(task_id=1), numbers(0), numbers(1)), ended(numbers(2)), LAYOUT)
    with pytest.raises(ProtocolError, match=words):
        footing.follow(change)


def session(*, makes: bool = True) -> Session:
    """A welcomed session of a model whose vectors are not enclosed."""
    identity, profile = Identity("w1", "trainer", incarnation=7), Profile(LAYOUT, numbers(0), samples=10)
    made = Session(identity, profile, PACE, makes_drifts=makes)
    assert hello(made).makes_drifts == makes
    welcome(made)
    return made


def given(session: Session, task: int, *vectors: Vector, **fields: Any) -> list[Any]:
    """The effects of a task's header and the vectors that follow."""
    drift_bytes = vectors[1].nbytes if len(vectors) > 1 else 0
    header = Assign(
        task_id=task,
        model_version=task,
        weight=1.0,
        state_bytes=LAYOUT.nbytes,
        drift_bytes=drift_bytes,
        **fields,
    )
    effects = say(session, header)
    for vector in vectors:
        effects += transfer(session, vector)
    return effects


def work_of(effects: list[Any]) -> Training:
    [start] = effects
    assert isinstance(start, Start) and isinstance(start.work, Training)
    return start.work


def delivered(
    session: Session, answer: Acknowledge.Outcome.ValueType = Acknowledge.OUTCOME_ACCEPTED
) -> Vector:
    """Task 1 was trained and answered; where it ended."""
    end = numbers(2)
    session.finished(work_of(given(session, 1, numbers(0), numbers(1))), ended(end))
    say(session, Acknowledge(task_id=1, outcome=answer))
    return end


def test_a_task_whose_drift_follows_starts_as_soon_as_the_state_is_here() -> None:
    worker = session()
    end, central = delivered(worker), numbers(3)
    work = work_of(given(worker, 2, central, drift_change=CHANGE))
    assert work.drift is not None
    wanted = expected(numbers(0), numbers(1), end, central)
    np.testing.assert_allclose(work.drift, wanted, rtol=1e-5, atol=1e-5)
    assert work.drift is work.drift, "it is made once"


def test_a_drift_follows_from_one_that_followed() -> None:
    worker = session()
    end, central = delivered(worker), numbers(3)
    second = work_of(given(worker, 2, central, drift_change=CHANGE))
    first = expected(numbers(0), numbers(1), end, central)
    assert second.drift is not None
    worker.finished(second, ended(numbers(4)))
    say(worker, Acknowledge(task_id=2, outcome=Acknowledge.OUTCOME_ACCEPTED))
    change = DriftChange(task_id=2, keep=0.5, toward=3.0, along=2.0)
    third = work_of(given(worker, 3, numbers(5), drift_change=change))
    assert third.drift is not None
    wanted = expected(central, first, numbers(4), numbers(5))
    np.testing.assert_allclose(third.drift, wanted, rtol=1e-5, atol=1e-4)


def test_what_it_was_made_of_is_let_go() -> None:
    worker, start, drift = session(), numbers(0), numbers(1)
    work = work_of(given(worker, 1, start, drift))
    end = numbers(2)
    gone = weakref.ref(work), weakref.ref(end)
    worker.finished(work, ended(end))
    say(worker, Acknowledge(task_id=1, outcome=Acknowledge.OUTCOME_ACCEPTED))
    del work, end
    following = work_of(given(worker, 2, numbers(3), drift_change=CHANGE))
    assert following.drift is not None
    gc.collect()
    assert [found() for found in gone] == [None, None]


@pytest.mark.parametrize("what", ["nothing", "refused", "reconnected", "used", "short"])
def test_the_coordinator_is_told_where_there_is_nothing_to_make_it_of(what: str) -> None:
    worker = session()
    match what:
        case "refused":
            delivered(worker, Acknowledge.OUTCOME_REFUSED)
        case "reconnected":
            delivered(worker)
            assert held(worker) == []
            welcome(worker)
        case "used":
            delivered(worker)
            given(worker, 2, numbers(3), numbers(4))
            say(worker, Cancel(task_id=2))
        case "short":
            worker = connected()
    if what == "short":
        header = Assign(task_id=9, weight=1.0, state_bytes=12, drift_change=CHANGE)
        assert kinds(say(worker, header)) == ["task_failed"]
    else:
        assert kinds(given(worker, 9, numbers(3), drift_change=CHANGE)) == ["task_failed"]


def test_a_drift_is_not_both_sent_and_made() -> None:
    worker = session()
    delivered(worker)
    assert kinds(given(worker, 2, numbers(3), numbers(4), drift_change=CHANGE)) == ["task_failed"]


@pytest.mark.parametrize("makes", [True, False])
def test_a_worker_that_makes_no_drifts_keeps_nothing(makes: bool) -> None:
    worker = session(makes=makes)
    delivered(worker)
    assert kinds(given(worker, 2, numbers(3), drift_change=CHANGE)) == ["Start" if makes else "task_failed"]


def test_an_update_that_arrived_before_the_line_broke_is_no_footing() -> None:
    """The coordinator does not know what a worker has after it has reconnected."""
    worker = session()
    worker.finished(work_of(given(worker, 1, numbers(0), numbers(1))), ended(numbers(2)))
    worker.opened()
    answer = HeldTaskAnswer(task_id=1, verdict=HeldTaskAnswer.VERDICT_ALREADY_HERE)
    welcome(worker, held_tasks=[answer])
    assert kinds(given(worker, 2, numbers(3), drift_change=CHANGE)) == ["task_failed"]
