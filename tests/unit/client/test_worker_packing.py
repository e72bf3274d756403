"""A worker's updates in a compact format: what is agreed on, sent, settled, and kept over a restart."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from fedecado.client.effects import Effect, Forget, Send, Start, Stop
from fedecado.client.pace import Pace
from fedecado.client.packing import Packer
from fedecado.client.session import Session
from fedecado.client.spool import Spool
from fedecado.client.work import Identity, Profile, Trained, Training
from fedecado.common.formats import decode
from fedecado.common.layout import Entry, Layout, Vector
from fedecado.common.names import COMPACT, Compact, Format
from fedecado.common.packed import NUMBERS
from fedecado.common.wire import encode, parse_coordinator_message
from fedecado.v1.session_pb2 import (
    Acknowledge,
    Assign,
    Cancel,
    CoordinatorMessage,
    HeldTaskAnswer,
    ProtocolVersion,
    Welcome,
)

LAYOUT = Layout((Entry("x", (40,)), Entry("mean", (2,), "buffer")))
START: Vector = np.linspace(0, 1, LAYOUT.size, dtype=np.float32)
END: Vector = (START + np.linspace(-1e-2, 3e-2, LAYOUT.size) ** 3).astype(np.float32)
formats = pytest.mark.parametrize("format", COMPACT)


def session(upload: Format = "int8") -> Session:
    identity = Identity("w1", "trainer", incarnation=7)
    return Session(identity, Profile(LAYOUT, START, 10), Pace(1.0, 0.1, 5.0), upload=upload)


def say(made: Session, content: Message) -> list[Effect]:
    message = CoordinatorMessage()
    [name] = [f.name for f in message.DESCRIPTOR.fields if f.message_type is content.DESCRIPTOR]
    getattr(message, name).CopyFrom(content)
    return made.received(message)


def welcome(made: Session, *accepted: Compact, **fields: object) -> list[Effect]:
    made.opened()
    numbers = [NUMBERS[name] for name in accepted]
    given: dict[str, object] = {"protocol": ProtocolVersion(major=1), "run_id": "r1", **fields}
    return say(made, Welcome(upload_formats=numbers, **given))  # type: ignore[arg-type]  # protobuf checks


def start(made: Session, task: int) -> Training:
    effects = say(made, Assign(task_id=task, model_version=4, weight=2.0, state_bytes=START.nbytes))
    for data in encode(START):
        effects += made.received(parse_coordinator_message(data))
    [effect] = effects
    assert isinstance(effect, Start) and isinstance(effect.work, Training)
    return effect.work


def training(task: int) -> Training:
    return Training(Assign(task_id=task, model_version=3), START, None)


def trained(end: Vector = END) -> Trained:
    return Trained(end, 0.5, 2.0, 8, 80, None, None, None, 0.1)


@formats
def test_an_update_is_sent_in_the_format_that_was_agreed_on(format: Compact) -> None:
    made, packer = session(format), Packer(format, LAYOUT)
    welcome(made, *COMPACT)
    assert made.upload == format
    work = start(made, 1)
    [send] = made.finished(work, packer.pack(made.run_id, work, trained()))
    assert isinstance(send, Send) and send.vector is not None
    header = send.message.update
    assert (header.format, header.state_bytes) == (NUMBERS[format], send.vector.nbytes)
    assert send.vector.nbytes < START.nbytes


@pytest.mark.parametrize("accepted", [(), ("float16",)])
def test_what_a_coordinator_does_not_take_goes_in_full_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture, accepted: tuple[Compact, ...]
) -> None:
    """One of an older version says nothing of formats."""
    made = session("int8")
    with caplog.at_level(logging.WARNING):
        welcome(made, *accepted, software_version="0.9")
    assert made.upload == "full"
    assert "(fedecado 0.9) does not take updates in int8, so they go in full" in caplog.text
    assert f"it takes: {', '.join(accepted) or 'none'}" in caplog.text
    work = start(made, 1)
    [send] = made.finished(work, trained())
    assert isinstance(send, Send)
    assert (send.message.update.format, send.vector is END) == (0, True)


def test_what_is_agreed_on_is_so_for_one_connection() -> None:
    made = session("int8")
    agreed = [made.upload for accepted in ((), COMPACT, ()) if welcome(made, *accepted) == []]
    assert agreed == ["full", "int8", "full"]


def test_full_precision_needs_no_agreement(caplog: pytest.LogCaptureFixture) -> None:
    made = session("full")
    with caplog.at_level(logging.WARNING):
        welcome(made)
    assert made.upload == "full" and not caplog.records


ACCEPTED, DUPLICATE, REFUSED = (
    Acknowledge.OUTCOME_ACCEPTED,
    Acknowledge.OUTCOME_DUPLICATE,
    Acknowledge.OUTCOME_REFUSED,
)


@pytest.mark.parametrize(("outcome", "counted"), [(ACCEPTED, True), (DUPLICATE, True), (REFUSED, False)])
def test_an_acknowledgement_says_whether_it_counted(
    outcome: "Acknowledge.Outcome.ValueType", counted: bool
) -> None:
    made, packer = session(), Packer("int8", LAYOUT)
    welcome(made, "int8")
    work = start(made, 1)
    made.finished(work, packer.pack("r1", work, trained()))
    assert say(made, Acknowledge(task_id=1, outcome=outcome)) == [Forget(1, counted)]


def test_a_damaged_update_is_sent_again_as_it_was_and_not_yet_settled() -> None:
    made, packer = session(), Packer("int8", LAYOUT)
    welcome(made, "int8")
    work = start(made, 1)
    [first] = made.finished(work, packer.pack("r1", work, trained()))
    damaged = Acknowledge(task_id=1, outcome=REFUSED, reason=Acknowledge.REASON_DAMAGED)
    [again] = say(made, damaged)
    assert isinstance(first, Send) and isinstance(again, Send) and again.vector is first.vector


@pytest.mark.parametrize("verdict", [HeldTaskAnswer.VERDICT_ALREADY_HERE, HeldTaskAnswer.VERDICT_UNWANTED])
def test_after_a_reconnect_the_coordinator_says_whether_it_counted(
    verdict: "HeldTaskAnswer.Verdict.ValueType",
) -> None:
    made, packer = session(), Packer("int8", LAYOUT)
    welcome(made, "int8")
    work = start(made, 1)
    made.finished(work, packer.pack("r1", work, trained()))
    effects = welcome(made, "int8", held_tasks=[HeldTaskAnswer(task_id=1, verdict=verdict)])
    assert effects == [Stop(work), Forget(1, verdict == HeldTaskAnswer.VERDICT_ALREADY_HERE)]


def test_work_that_is_cancelled_while_it_is_packed_does_not_count() -> None:
    made, packer = session(), Packer("int8", LAYOUT)
    welcome(made, "int8")
    work = start(made, 1)
    assert say(made, Cancel(task_id=1)) == [Stop(work)]
    assert made.finished(work, packer.pack("r1", work, trained())) == [Forget(1)]


@given(st.lists(st.sampled_from([True, False, None]), max_size=12), st.sampled_from(COMPACT))
def test_what_arrived_and_what_is_owed_add_up_to_what_counted(
    fates: list[bool | None], format: Compact
) -> None:
    """Each update counts, does not count, or is never heard of again."""
    packer, arrived, meant = Packer(format, LAYOUT), np.zeros(40), np.zeros(40)
    draw, owed = np.random.default_rng(len(fates)), np.zeros(40)
    for task, counted in enumerate(fates, 1):
        end = START + (1e-2 * draw.standard_normal(LAYOUT.size)).astype(np.float32)
        packed = packer.pack("r1", training(task), trained(end)).packed
        assert packed is not None
        if counted is not None:
            packer.settle(task, counted=counted)
            packer.settle(task, counted=not counted)  # whatever is heard later
        if counted:
            arrived += (decode(packed, LAYOUT, START) - START)[:40]
            meant += (end - START)[:40]
            owed = packed.missing.astype(float)
    np.testing.assert_allclose(arrived + owed, meant, atol=1e-6)


def test_nothing_is_owed_to_another_run() -> None:
    packer = Packer("int8", LAYOUT)
    fresh = packer.pack("r1", training(1), trained()).packed
    packer.settle(1, counted=True)
    other = packer.pack("r2", training(1), trained()).packed
    assert fresh is not None and other is not None
    np.testing.assert_array_equal(other.payload, fresh.payload)


def kept(folder: Path, packer: Packer, task: int) -> tuple[Spool, Trained]:
    """A packed update on disk."""
    packed, spool = packer.pack("r1", training(task), trained()), Spool(folder, "w1")
    assert spool.keep("r1", LAYOUT, training(task), packed)
    return spool, packed


def again(folder: Path, format: Compact = "int8") -> Packer:
    """What the next process of this worker begins with."""
    packer, spool = Packer(format, LAYOUT), Spool(folder, "w1")
    if (owed := spool.owed(LAYOUT)) is not None:
        packer.restore(*owed)
    if (left := spool.load(LAYOUT)) is not None and left.outcome.packed is not None:
        packer.expect(left.run_id, left.work.header.task_id, left.outcome.packed.missing)
    return packer


@formats
def test_a_packed_update_comes_back_from_the_disk_as_it_was(tmp_path: Path, format: Compact) -> None:
    _, packed = kept(tmp_path, Packer(format, LAYOUT), 7)
    found = Spool(tmp_path, "w1").load(LAYOUT)
    assert found is not None and found.outcome.packed is not None and packed.packed is not None
    assert found.outcome.packed.format == format
    np.testing.assert_array_equal(found.outcome.packed.payload, packed.packed.payload)
    np.testing.assert_array_equal(found.outcome.packed.missing, packed.packed.missing)
    assert replace(found.outcome, packed=None, state=END).window == packed.window


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_what_is_owed_outlives_the_process(tmp_path: Path, counted: bool, before: bool) -> None:
    """The acknowledgement comes before the restart, or after it."""
    packer = Packer("int8", LAYOUT)
    spool, _ = kept(tmp_path, packer, 1)
    packer.settle(1, counted=True)
    spool.forget(1, counted=True)
    spool, _ = kept(tmp_path, packer, 2)
    packer.settle(2, counted=counted)
    if before:
        spool.forget(2, counted=counted)
        restarted = again(tmp_path)
    else:
        restarted = again(tmp_path)
        restarted.settle(2, counted=counted)
    expected, found = (p.pack("r1", training(3), trained()).packed for p in (packer, restarted))
    assert expected is not None and found is not None
    np.testing.assert_array_equal(found.payload, expected.payload)
    np.testing.assert_array_equal(found.missing, expected.missing)


def test_what_an_update_paid_that_could_not_be_kept_is_not_owed_again(tmp_path: Path) -> None:
    spool, _ = kept(tmp_path, Packer("int8", LAYOUT), 1)
    spool.forget(1, counted=True)
    assert spool.owed(LAYOUT) is not None
    spool.forget(2, counted=True)
    assert spool.owed(LAYOUT) is None


def test_damage_to_what_is_owed_costs_no_more_than_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool, _ = kept(tmp_path, Packer("int8", LAYOUT), 1)
    spool.forget(1, counted=True)
    [path] = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    assert spool.owed(LAYOUT) is None
    assert "what rounding took from earlier updates is lost" in caplog.text
