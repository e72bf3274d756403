"""Pauses between connections, the training thread, cut errors, and log lines."""

import asyncio
import json
import logging
import random
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.client.background import Background
from fedecado.client.pace import Backoff, Pace
from fedecado.client.work import Failed
from fedecado.common.logs import setup_logging
from fedecado.common.timeouts import Timeouts

PACE = Pace(progress=1.0, reconnect=0.1, reconnect_most=5.0)


@given(st.integers(), st.integers(1, 200))
def test_pauses_double_to_a_limit_and_are_jittered(seed: int, failures: int) -> None:
    backoff = Backoff(random.Random(seed))
    pauses = [backoff.pause(PACE, stood=0.0) for _ in range(failures)]
    for k, pause in enumerate(pauses):
        usual = min(5.0, 0.1 * 2 ** min(k, 60))
        assert usual / 2 <= pause <= usual


def test_a_connection_that_stood_starts_the_pauses_over() -> None:
    backoff = Backoff(random.Random(0))
    for _ in range(10):
        backoff.pause(PACE, stood=0.0)
    assert backoff.pause(PACE, stood=100.0) <= 0.1


def test_connections_that_break_at_once_do_not() -> None:
    backoff = Backoff(random.Random(0))
    pauses = [backoff.pause(PACE, stood=0.001) for _ in range(10)]
    assert pauses[-1] >= 2.5


@given(st.floats(0.1, 1e6))
def test_a_pause_that_the_coordinator_asks_for_is_kept(least: float) -> None:
    assert Backoff(random.Random(0)).pause(PACE, stood=0.0, least=least) >= least


def test_the_pace_follows_from_the_timeouts() -> None:
    assert Pace.of(Timeouts(15.0)) == PACE


async def test_the_thread_does_jobs_in_order_and_survives_their_errors() -> None:
    background = Background()
    done: list[int] = []
    first, second = background.submit(lambda: done.append(1)), background.submit(lambda: sys.exit(3))
    third = background.submit(lambda: done.append(2))
    await first
    with pytest.raises(SystemExit):
        await second
    await third
    assert done == [1, 2]
    await background.close(10)
    await background.close(10)
    assert background.ended


async def test_closing_does_not_wait_longer_than_told() -> None:
    background, release = Background(), threading.Event()
    busy = background.submit(lambda: release.wait(10))
    await background.close(0)
    assert not background.ended
    release.set()
    assert await busy
    await background.close(10)
    assert background.ended


def test_what_a_job_says_after_the_loop_is_closed_is_dropped() -> None:
    release, ended = threading.Event(), threading.Event()

    def job() -> None:
        release.wait(10)

    async def start() -> Background:
        background = Background()
        background.submit(job)
        return background

    background = asyncio.run(start())
    background._jobs.put(ended.set)
    release.set()
    assert ended.wait(10)  # the thread went on without a loop
    background._jobs.put(None)


def test_a_long_traceback_keeps_its_head_and_its_end() -> None:
    def deep(n: int) -> None:
        if n:
            deep_again(n - 1)
        raise ValueError("bottom " + "x" * 10_000)

    def deep_again(n: int) -> None:
        deep(n)

    with pytest.raises(ValueError, match="bottom") as caught:
        deep(100)
    failed = Failed.of(caught.value)
    assert failed.type == "ValueError"
    assert len(failed.message) == 2000
    assert len(failed.traceback) < 8100
    assert failed.traceback.startswith("Traceback")
    assert "characters left out" in failed.traceback


def test_an_error_text_that_is_no_unicode_may_travel() -> None:
    failed = Failed.of(OSError("no file \udcff"))
    failed.message.encode()
    failed.traceback.encode()


@pytest.fixture
def _logging_restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GRPC_VERBOSITY", "ERROR")  # set here, so that it is unset after the test
    root, ours = logging.getLogger(), logging.getLogger("fedecado")
    handlers, level = list(root.handlers), ours.level
    yield
    root.handlers[:] = handlers
    ours.setLevel(level)


@pytest.mark.usefixtures("_logging_restored")
def test_log_lines_are_compact_and_second_setups_replace_the_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    setup_logging("error")
    setup_logging("info")
    logging.getLogger("fedecado.test").info("hello %d", 3)
    logging.getLogger("fedecado.test").debug("hidden")
    logging.getLogger("another").info("hidden")
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("INFO    hello 3")


@pytest.mark.usefixtures("_logging_restored")
def test_json_lines_hold_a_traceback_in_one_piece(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("debug", json=True)
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("fedecado.test").exception("it failed")
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["logger"], line["message"]) == ("error", "fedecado.test", "it failed")
    assert line["exception"].endswith("ValueError: why")
