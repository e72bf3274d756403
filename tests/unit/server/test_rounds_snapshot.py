"""A saved engine comes back as it was, or not at all. That it acts the same is in the state machine."""

import json
from typing import Any

import pytest

from fedecado.common.errors import RoundError
from fedecado.server.rounds import (
    Banned,
    DeadlinePassed,
    Disconnected,
    Engine,
    Enrolled,
    Event,
    Left,
    Rules,
    StartTimer,
    TaskFailed,
    Unbanned,
    UpdateArrived,
    timers,
)

RULES = Rules(min_clients=4, min_updates=4, lease=60, deadline=30, retry=5)


def saved(*events: Event, rules: Rules = RULES) -> dict[str, Any]:
    engine = Engine(rules)
    for event in [*(Enrolled(client, 10) for client in "abcd"), *events]:
        engine.handle(event)
    return engine.snapshot()


BUSY = saved(UpdateArrived("a", 1), Disconnected("b"), TaskFailed("c", 3))
CLOSING = saved(*(UpdateArrived(client, task) for task, client in enumerate("abcd", 1)))


def test_a_snapshot_is_json() -> None:
    for snapshot in (Engine(RULES).snapshot(), BUSY, CLOSING):
        assert json.loads(json.dumps(snapshot)) == snapshot
        assert Engine.restore(RULES, snapshot).snapshot() == snapshot


def test_a_snapshot_is_not_touched_by_the_engine_that_gave_or_took_it() -> None:
    before = json.dumps(BUSY)
    engine = Engine.restore(RULES, BUSY)
    engine.handle(UpdateArrived("d", 4))
    engine.handle(Left("a"))
    assert json.dumps(BUSY) == before


def test_bans_survive_a_restart_and_snapshots_from_before_there_were_any_still_load() -> None:
    banned = saved(Banned("a", "garbage"), Banned("stranger"))
    engine = Engine.restore(RULES, banned)
    assert engine.banned == {"a": "garbage", "stranger": ""}
    with pytest.raises(RoundError, match="banned"):
        engine.handle(Enrolled("a", 10))
    engine.handle(Unbanned("a"))
    engine.handle(Enrolled("a", 10))
    before = {name: value for name, value in BUSY.items() if name != "banned"}
    assert Engine.restore(RULES, before).snapshot() == BUSY
    with pytest.raises(RoundError, match="banned"):
        Engine.restore(RULES, {**BUSY, "banned": {"a": ""}})


def test_running_tasks_go_on_after_a_restart() -> None:
    engine = Engine.restore(RULES, BUSY)
    assert engine.running() == [4]
    engine.handle(Enrolled("b", 10, (2,)))
    assert engine.running() == [2, 4]
    engine.handle(UpdateArrived("b", 2))
    assert list(engine.ready) == [1, 2]
    assert engine.tasks[2].version == 0


def test_what_is_being_aggregated_is_still_known_after_a_restart() -> None:
    assert Engine.restore(RULES, CLOSING).closing == (1, 2, 3, 4)


def test_the_timers_that_a_restart_needs_are_named() -> None:
    engine = Engine.restore(RULES, BUSY)
    expected = {StartTimer(5, 1, 5), StartTimer(30, 1), StartTimer(60, 1, 2), StartTimer(60, 1, 4)}
    assert set(timers(engine)) == expected
    engine.handle(DeadlinePassed(1))
    assert timers(engine) == [StartTimer(5, 1, 5)]
    assert not timers(Engine.restore(RULES, CLOSING))
    assert not timers(Engine(RULES))


def test_other_rules_may_go_on_with_a_run() -> None:
    engine = Engine.restore(Rules(min_updates=1), BUSY)
    assert engine.rules.min_updates == 1


def changed(snapshot: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {**snapshot, **values}


@pytest.mark.parametrize(
    ("snapshot", "why"),
    [
        ({}, "Field required"),
        (changed(BUSY, format=2), "format"),
        (changed(BUSY, extra=1), "extra"),
        (changed(BUSY, round="1"), "round"),
        (changed(BUSY, round=-1), "round"),
        (changed(BUSY, tasks=[{**BUSY["tasks"][0], "weight": float("nan")}]), "weight"),
        (changed(BUSY, tasks=[{**BUSY["tasks"][0], "phase": "lost"}]), "phase"),
        (changed(BUSY, clients=BUSY["clients"] * 2), "a client appears twice"),
        (changed(BUSY, tasks=BUSY["tasks"] * 2), "a task appears twice"),
        (changed(BUSY, tasks=BUSY["tasks"][:2]), "open tasks and the clients that hold them differ"),
        (changed(BUSY, ready=[]), "ready tasks and the rounds' updates differ"),
        (changed(BUSY, ready=[99]), "ready tasks and the rounds' updates differ"),
        (changed(BUSY, ready=[1, 1]), "ready tasks and the rounds' updates differ"),
        (changed(BUSY, clients=BUSY["clients"][1:]), "has no client, or its client may be asked again"),
        (changed(BUSY, tasks=[{**task, "version": 7} for task in BUSY["tasks"]]), "still to come"),
        (changed(BUSY, next_number=3), "the next number was given out before"),
        (changed(CLOSING, open=True), "the round is both open and closed"),
        (changed(BUSY, finished="enough"), "the round is both open and closed"),
    ],
)
def test_what_is_not_a_snapshot_is_refused(snapshot: dict[str, Any], why: str) -> None:
    with pytest.raises(RoundError, match="not a snapshot of a round engine") as caught:
        Engine.restore(RULES, snapshot)
    assert why in str(caught.value)
