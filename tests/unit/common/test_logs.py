"""Log lines say what they are about: in fields for machines, in brackets for people."""

import json
import logging
from collections.abc import Iterator

import pytest

from fedecado.common import logs
from fedecado.common.logs import Sparingly, about, identify, setup_logging

LOG = logging.getLogger("fedecado.test")


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave the process's logging as it was."""
    monkeypatch.setattr(logs, "_process", {})
    root = logging.getLogger()
    before, level = list(root.handlers), logging.getLogger("fedecado").level
    yield
    root.handlers[:] = before
    logging.getLogger("fedecado").setLevel(level)


def test_a_json_line_has_what_it_is_about_in_fields(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging(json=True)
    identify(run="demo")
    LOG.info("round %d: %d updates", 3, 2, extra=about(round=3, updates=2, seconds=0.5))
    line = json.loads(capsys.readouterr().err)
    assert {name: line[name] for name in ("run", "round", "updates", "seconds")} == {
        "run": "demo",
        "round": 3,
        "updates": 2,
        "seconds": 0.5,
    }
    assert line["message"] == "round 3: 2 updates" and line["level"] == "info"


def test_people_find_every_line_about_a_worker_by_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging()
    identify(run="demo")
    LOG.info("it is gone", extra=about(worker="w1", task=7, address="ipv4:127.0.0.1:1"))
    LOG.info("nothing special")
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("INFO    it is gone [worker=w1 task=7]")
    assert second.endswith("INFO    nothing special")


def test_values_that_json_does_not_know_become_words(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging(json=True)
    LOG.info("x", extra=about(error=ValueError("no data")))
    assert json.loads(capsys.readouterr().err)["error"] == "no data"


def test_lines_about_the_details_are_left_out_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging()
    LOG.debug("task 1 started")
    logging.getLogger("other").info("a library talks")
    assert capsys.readouterr().err == ""


def test_of_lines_that_come_in_a_rush_one_a_second_is_info(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    sparingly = Sparingly(most=3)
    assert [sparingly.level() for _ in range(5)] == [logging.INFO] * 3 + [logging.DEBUG] * 2
    now += 1.5
    assert [sparingly.level() for _ in range(2)] == [logging.INFO, logging.DEBUG]
    now += 1e6
    assert [sparingly.level() for _ in range(4)] == [logging.INFO] * 3 + [logging.DEBUG]
