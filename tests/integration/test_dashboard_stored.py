"""A coordinator's run, looked at after its end through its folder, and by the next coordinator's page."""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedecado.common.layout import Layout
from fedecado.server.observe.finished import read_run
from fedecado.server.rounds import Rules
from fedecado.server.store import Recipe


def kept(**rules: Any) -> dict[str, Any]:
    """Arguments of `start` for a run that is kept."""

    def recipe(layout: Layout, rules: Rules) -> Recipe:
        return Recipe(layout, "fedecado", rules)

    plan = {"recipe": partial(recipe, rules=Rules(**rules)), "observe": "127.0.0.1:0"}
    return {"plan": plan, **rules}


async def three_rounds(start: Any, connect: Any, **rules: Any) -> Any:
    """The live snapshot at the end of three rounds of two workers, one of which erred once."""
    async with start(**kept(min_clients=2, **rules)) as coordinator:
        async with connect(coordinator, "w1") as one, connect(coordinator, "w2") as two:
            await one.send_initial()
            for _ in range(3):
                await asyncio.gather(one.work(0.1), two.work(-0.3))
            coordinator.run.members.by_id["w2"].blame("ValueError", "x" * 10_000, traceback="long")
            if "max_rounds" in rules:
                await asyncio.wait_for(coordinator.run.finished.wait(), 30)
            else:
                await asyncio.gather(one.receive_assign(), two.receive_assign())
            assert coordinator.observatory is not None
            await coordinator.observatory._tell()
            return json.loads(json.dumps(coordinator.observatory._live.snapshot()))


async def test_a_run_that_is_over_looks_as_it_did_when_it_ended(
    start: Any, connect: Any, tmp_path: Path
) -> None:
    live = await three_rounds(start, connect, max_rounds=3)
    shown = json.loads(json.dumps(read_run(tmp_path / "run"), allow_nan=False))
    assert shown["run"]["phase"] == "finished" and "all 3 rounds are done" in shown["run"]["waiting_for"]
    assert shown["rounds"] == live["rounds"] and len(shown["rounds"]) == 3
    assert shown["rounds"][-1]["truncation_error"] is not None
    assert shown["windows"] == live["windows"]
    assert sorted(client[0] for client in shown["windows"]["clients"]) == ["w1", "w2"]
    for name in ("version", "rho", "tolerance", "accepted", "parameters", "simulated_time"):
        assert shown["run"][name] == pytest.approx(live["run"][name]), name
    by_id = {worker["id"]: worker for worker in shown["workers"]}
    assert by_id["w1"]["accepted"] == 3 and by_id["w1"]["flow"] > 0
    # The protocol's test client reports T_i = 0.1 for one step with weight 1.
    assert by_id["w1"]["rate"] == pytest.approx(0.1)
    assert by_id["w2"]["error"].startswith("ValueError: xxx") and len(by_id["w2"]["error"]) <= 500


async def test_an_interrupted_run_says_that_it_can_go_on(start: Any, connect: Any, tmp_path: Path) -> None:
    await three_rounds(start, connect)
    shown = read_run(tmp_path / "run")
    assert shown["run"]["phase"] == "interrupted" and "started again, the run goes on" in str(shown["run"])
    assert [row["number"] for row in shown["rounds"]] == [1, 2, 3]


async def test_the_next_coordinators_page_has_the_history_and_the_last_windows(
    start: Any, connect: Any
) -> None:
    live = await three_rounds(start, connect)
    async with start(**kept(min_clients=2)) as coordinator:
        assert coordinator.observatory is not None
        await coordinator.observatory._tell()
        shown = json.loads(json.dumps(coordinator.observatory._live.snapshot()))
    assert shown["rounds"] == live["rounds"] and shown["windows"] == live["windows"]
    assert {worker["state"] for worker in shown["workers"]} == {"away"}
