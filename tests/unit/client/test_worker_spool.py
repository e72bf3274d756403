"""A finished update on disk: it is delivered by the next process, or set aside with a word about why."""

import logging
import os
import re
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.client.effects import Effect, Forget, Send, Stop
from fedecado.client.pace import Pace
from fedecado.client.session import Session
from fedecado.client.spool import Spool
from fedecado.client.work import Identity, Profile, Trained, Training
from fedecado.common.errors import ConfigError
from fedecado.common.layout import Layout
from fedecado.v1.session_pb2 import (
    Acknowledge,
    Assign,
    CoordinatorBye,
    CoordinatorMessage,
    HeldTask,
    HeldTaskAnswer,
    ProtocolVersion,
    Welcome,
)

LAYOUT = Layout.flat(4)
WORK = Training(Assign(task_id=7, model_version=3), np.zeros(4, "float32"), None)
OUTCOME = Trained(np.arange(4, dtype="float32"), 0.25, 2.0, 5, 160, 1.5, float("nan"), None, 0.1)


def keep(folder: Path, worker: str = "w1", layout: Layout = LAYOUT) -> Path:
    """Keep an update; its file."""
    assert Spool(folder, worker).keep("run-1", layout, WORK, OUTCOME)
    [path] = folder.glob("*.update")
    return path


def test_an_update_comes_back_as_it_was(tmp_path: Path) -> None:
    keep(tmp_path)
    found = Spool(tmp_path, "w1").load(LAYOUT)
    assert found is not None
    assert (found.run_id, found.work.header) == ("run-1", WORK.header)
    assert np.array_equal(found.outcome.state, OUTCOME.state)
    assert found.outcome.state.dtype == OUTCOME.state.dtype
    assert repr(found.outcome).partition("window")[2] == repr(OUTCOME).partition("window")[2]


def test_the_file_is_for_its_owner_alone_and_nothing_else_lies_there(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "spool"
    path = keep(folder, "site/4 ..")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.iterdir()) == [path]
    assert path.parent == folder


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    spool, victim = Spool(tmp_path, "w1"), tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".w1.update.part").symlink_to(victim)
    assert not spool.keep("run-1", LAYOUT, WORK, OUTCOME)
    assert victim.read_text() == "precious"


def test_workers_share_a_folder_and_a_newer_update_replaces_an_older_one(tmp_path: Path) -> None:
    keep(tmp_path)
    other = Spool(tmp_path, "w2")
    assert other.load(LAYOUT) is None
    spool = Spool(tmp_path, "w1")
    later = Training(Assign(task_id=8), WORK.state, None)
    assert spool.keep("run-1", LAYOUT, later, OUTCOME)
    spool.forget(7)  # its acknowledgement came late
    found = Spool(tmp_path, "w1").load(LAYOUT)
    assert found is not None
    assert found.work.header.task_id == 8
    spool.forget(8)
    assert list(tmp_path.iterdir()) == []


@given(st.data())
def test_a_torn_or_changed_file_is_set_aside(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    path = keep(folder)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    assert Spool(folder, "w1").load(LAYOUT) is None
    assert [found.name for found in folder.iterdir()] == ["w1.unusable"]


@pytest.mark.parametrize(
    ("worker", "layout", "said"),
    [("w1", Layout.flat(5), "its layout is .*, the task's is now"), ("w2", LAYOUT, "it is of worker 'w1'")],
)
def test_what_does_not_fit_is_set_aside_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, worker: str, layout: Layout, said: str
) -> None:
    path = keep(tmp_path)
    path.rename(tmp_path / f"{worker}.update")
    with caplog.at_level(logging.WARNING):
        assert Spool(tmp_path, worker).load(layout) is None
    assert re.search(said, caplog.text)


def test_a_full_disk_is_a_warning_and_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    spool = Spool(tmp_path, "w1")
    monkeypatch.setattr(os, "fsync", full)
    assert not spool.keep("run-1", LAYOUT, WORK, OUTCOME)
    assert "No space left on device; it would be lost with this process" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"worker.spool = .*Not a directory; choose another folder"):
        Spool(tmp_path / "file" / "spool", "w1")


def session() -> Session:
    """Of a process that found an update on disk."""
    made = Session(
        Identity("w1", "trainer", incarnation=7), Profile(LAYOUT, WORK.state, 10), Pace(1.0, 0.1, 5.0)
    )
    made.restore("run-1", WORK, OUTCOME)
    return made


def welcomed(made: Session, verdict: "HeldTaskAnswer.Verdict.ValueType") -> list[Effect]:
    [hello] = made.opened()
    assert isinstance(hello, Send)
    assert hello.message.hello.run_id == "run-1"
    [held] = hello.message.hello.held_tasks
    assert (held.task_id, held.state) == (7, HeldTask.STATE_FINISHED)
    answer = HeldTaskAnswer(task_id=7, verdict=verdict)
    welcome = Welcome(protocol=ProtocolVersion(major=1), run_id="run-1", held_tasks=[answer])
    return made.received(CoordinatorMessage(welcome=welcome))


def test_a_restored_update_is_announced_sent_and_forgotten_once_acknowledged() -> None:
    made = session()
    [send] = welcomed(made, HeldTaskAnswer.VERDICT_SEND)
    assert isinstance(send, Send)
    assert (send.message.update.task_id, send.message.update.model_version) == (7, 3)
    assert (send.message.update.window, send.message.update.weight) == (0.25, 2.0)
    assert send.vector is OUTCOME.state
    again = Acknowledge(task_id=7, outcome=Acknowledge.OUTCOME_REFUSED, reason=Acknowledge.REASON_DAMAGED)
    [send] = made.received(CoordinatorMessage(acknowledge=again))
    assert isinstance(send, Send)
    done = Acknowledge(task_id=7, outcome=Acknowledge.OUTCOME_ACCEPTED)
    assert made.received(CoordinatorMessage(acknowledge=done)) == [Forget(7, counted=True)]


@pytest.mark.parametrize("verdict", [HeldTaskAnswer.VERDICT_ALREADY_HERE, HeldTaskAnswer.VERDICT_UNWANTED])
def test_a_restored_update_that_nobody_wants_is_forgotten(
    verdict: "HeldTaskAnswer.Verdict.ValueType",
) -> None:
    counted = verdict == HeldTaskAnswer.VERDICT_ALREADY_HERE
    assert welcomed(session(), verdict) == [Stop(WORK), Forget(7, counted)]


def test_the_end_of_the_run_ends_the_wait_for_an_acknowledgement() -> None:
    made = session()
    welcomed(made, HeldTaskAnswer.VERDICT_SEND)
    bye = CoordinatorBye(reason=CoordinatorBye.REASON_FINISHED)
    assert made.received(CoordinatorMessage(bye=bye)) == [Forget(7)]


def test_an_update_kept_too_late_is_forgotten_at_once() -> None:
    made = session()
    other = Training(Assign(task_id=9), WORK.state, None)
    assert made.finished(other, OUTCOME, kept=True) == [Forget(9)]
    assert made.finished(other, OUTCOME) == []


def test_a_worker_that_is_stopped_leaves_its_update_for_the_next_one() -> None:
    made = session()
    welcomed(made, HeldTaskAnswer.VERDICT_SEND)
    assert Forget(7) not in made.stop()
