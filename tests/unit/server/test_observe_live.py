"""The page's state: complete at first, then only what has changed."""

import json
import math
from pathlib import Path

import pytest
from observe_driving import ABOUT, add_member, closed_round, make_run

from fedecado.server.coordinator.journal import Measurement
from fedecado.server.coordinator.run import Run
from fedecado.server.numerics.options import Options
from fedecado.server.observe import live
from fedecado.server.observe.live import LiveState
from fedecado.server.observe.observer import Window
from fedecado.server.observe.rows import worker_state
from fedecado.server.rounds import Disconnected, LeaseExpired
from fedecado.v1 import session_pb2 as pb


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path, min_clients=2)


async def test_a_refresh_tells_only_what_has_changed(run: Run) -> None:
    state = LiveState(run, ABOUT, Options())
    add_member(run, "a")
    first = await state.refresh()
    assert [row["id"] for row in first["workers"]] == ["a"]
    assert first["run"]["name"] == "demo" and "rounds" not in first
    assert await state.refresh() == {}
    run.members.by_id["a"].blame("ValueError", "no data")
    assert [row["error"] for row in (await state.refresh())["workers"]] == ["ValueError: no data"]
    assert state.snapshot()["workers"][0]["error"] == "ValueError: no data"


async def test_closed_rounds_and_measurements_are_told_once_and_kept_for_a_reload(run: Run) -> None:
    state = LiveState(run, ABOUT, None)
    for number in (1, 2):
        run.journal.add_round(closed_round(number))
    run.journal.measurements.append(Measurement(1, {"accuracy": 0.5}))
    first = await state.refresh()
    assert [row["number"] for row in first["rounds"]] == [1, 2]
    assert first["measurements"] == [{"version": 1, "metrics": {"accuracy": 0.5}}]
    run.journal.add_round(closed_round(3), (Window("a", 1.0, 1),), late=True)
    run.journal.measurements.append(Measurement(1, {"accuracy": 0.6}))
    second = await state.refresh()
    assert [(row["number"], row["late"], row["stale"]) for row in second["rounds"]] == [(3, True, 1)]
    assert [m["metrics"]["accuracy"] for m in second["measurements"]] == [0.6]
    assert [row["number"] for row in state.snapshot()["rounds"]] == [1, 2, 3]


async def test_the_windows_of_the_latest_round_are_told_with_it(run: Run) -> None:
    state = LiveState(run, ABOUT, Options())
    windows = (Window("a", 0.5, 0, 0.25), Window("b", 1.0, 2))
    run.journal.add_round(closed_round(4, details={"reach": 2.5}), windows)
    told = (await state.refresh())["windows"]
    clients = [["a", 0.5, 0, 0.25], ["b", 1.0, 2, None]]
    assert told == {"round": 4, "T": 1.0, "clients": clients, "reach": 2.5}
    assert "windows" not in await state.refresh()
    assert state.snapshot()["windows"] == told


async def test_the_imbalance_of_the_flows_is_what_moves_the_centre(run: Run) -> None:
    run.journal.add_round(closed_round(1, rate=0.5))
    run.journal.add_round(closed_round(2, details={}))
    rows = (await LiveState(run, ABOUT, None).refresh())["rounds"]
    assert [row["imbalance"] for row in rows] == [1.0, None]


async def test_numbers_that_json_does_not_have_become_null(run: Run) -> None:
    run.journal.add_round(closed_round(1, loss_before=math.nan, loss_after=math.nan))
    run.journal.measurements.append(Measurement(1, {"loss": math.inf}))
    state = LiveState(run, ABOUT, Options(rho=math.inf))
    await state.refresh()
    whole = json.loads(json.dumps(state.snapshot(), allow_nan=False))
    assert whole["rounds"][0]["loss_after"] is None
    assert whole["measurements"][0]["metrics"]["loss"] is None
    assert whole["run"]["rho"] is None


async def test_a_reload_gets_the_newest_rounds_of_a_long_run(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "HISTORY", 5)
    state = LiveState(run, ABOUT, None)
    for number in range(1, 21):
        run.journal.add_round(closed_round(number))
    await state.refresh()
    assert [row["number"] for row in state.snapshot()["rounds"]] == [16, 17, 18, 19, 20]


def test_a_workers_state_says_what_it_is_up_to(run: Run) -> None:
    session = object()
    members = {name: add_member(run, name) for name in ("a", "b")}
    judge = add_member(run, "judge", role=pb.ROLE_EVALUATOR)
    for member in (*members.values(), judge):
        member.session = session  # type: ignore[assignment]  # any session will do
    assert [worker_state(run, m) for m in (*members.values(), judge)] == ["working", "working", "idle"]
    run.engine.handle(LeaseExpired(1))
    assert worker_state(run, members["a"]) == "overdue"
    members["b"].session = None
    run.engine.handle(Disconnected("b"))
    assert worker_state(run, members["b"]) == "away"
    judge.session = None
    assert worker_state(run, judge) == "offline"
