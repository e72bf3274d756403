"""Pausing, and every way in which a run ends."""

import pytest
from engine_driving import answer, of, play, start

from fedecado.server.rounds import (
    Accept,
    Aggregated,
    Assign,
    Cancel,
    CloseRound,
    Disconnected,
    Enrolled,
    Finish,
    Measured,
    Paused,
    Resumed,
    Rules,
    Stopped,
    Target,
)


def test_a_pause_lets_the_open_round_end_and_starts_no_other() -> None:
    engine = start(Rules(min_clients=2), "ab")
    play(engine, Paused())
    assert of(CloseRound, answer(engine, "ab"))
    assert not of(Assign, play(engine, Aggregated(1.0), Enrolled("c", 10)))
    assert len(of(Assign, play(engine, Resumed()))) == 3


def test_a_pause_holds_replacements_and_the_stream_back() -> None:
    rounds = start(Rules(min_clients=2, min_updates=2), "ab")
    play(rounds, Paused())
    assert not of(Assign, play(rounds, Disconnected("a"), Enrolled("a", 10)))
    assert of(Assign, play(rounds, Resumed()))
    stream = start(Rules(mode="stream", min_clients=2, target_updates=2), "ab")
    play(stream, Paused())
    assert not of(Assign, play(stream, Enrolled("c", 10)))
    assert of(Assign, play(stream, Resumed()))


def test_a_paused_stream_closes_with_what_is_there_when_nobody_works_any_more() -> None:
    engine = start(Rules(mode="stream", min_clients=2, target_updates=5), "ab")
    play(engine, Paused())
    assert of(CloseRound, answer(engine, "ab")) == [CloseRound(1, (1, 2))]


def test_a_stop_while_collecting_cancels_what_runs() -> None:
    engine = start(Rules(min_clients=3), "abc")
    answer(engine, "a")
    play(engine, Disconnected("c"))
    effects = play(engine, Stopped("enough"))
    assert effects == [Cancel(2, "b", "the run is over"), Finish("enough")]  # c cannot be told
    told = play(engine, Enrolled("c", 10, (3,)))
    assert told == [Cancel(3, "c", "task 3 is no longer open")]
    assert not play(engine, Stopped("again"), Resumed(), Enrolled("d", 10))
    assert engine.finished == "enough"


def test_a_stop_while_aggregating_still_takes_the_new_version() -> None:
    engine = start(Rules(min_clients=2), "ab")
    answer(engine, "ab")
    assert of(Finish, play(engine, Stopped())) == [Finish("stopped on request")]
    assert engine.closing == (1, 2)
    effects = play(engine, Aggregated(1.0))
    assert not of(Finish, effects)
    assert not of(Assign, effects)
    assert engine.version == 1
    assert not engine.tasks


def test_a_run_ends_after_its_last_round() -> None:
    engine = start(Rules(min_clients=1, max_rounds=2), "a")
    answer(engine, "a")
    assert of(Assign, play(engine, Aggregated(1.0)))
    answer(engine, "a")
    assert of(Finish, play(engine, Aggregated(1.0))) == [Finish("all 2 rounds are done")]
    assert (engine.round, engine.version) == (2, 2)


def test_a_run_ends_after_its_last_round_also_when_paused() -> None:
    engine = start(Rules(min_clients=1, max_rounds=1), "a")
    play(engine, Paused())
    answer(engine, "a")
    assert of(Finish, play(engine, Aggregated(1.0)))


def test_a_run_without_limit_goes_on() -> None:
    engine = start(Rules(min_clients=1, max_rounds=None), "a")
    for _ in range(200):
        answer(engine, "a")
        play(engine, Aggregated(1.0))
    assert not engine.finished


def test_a_run_ends_at_rest_but_not_at_the_tolerance_itself() -> None:
    engine = start(Rules(min_clients=1, rest_tolerance=1e-3), "a")
    answer(engine, "a")
    assert not of(Finish, play(engine, Aggregated(1e-3)))
    answer(engine, "a")
    (finish,) = of(Finish, play(engine, Aggregated(0.9e-3)))
    assert finish.reason == "at rest: ‖dx_c/dt‖ = 0.0009 is below 0.001"


@pytest.mark.parametrize(
    ("target", "short", "reached"),
    [("accuracy>=0.9", 0.89, 0.9), ("loss<=0.1", 0.11, 0.1)],
)
def test_a_run_ends_when_its_target_is_reached(target: str, short: float, reached: float) -> None:
    goal = Target.parse(target)
    engine = start(Rules(min_clients=2, target=goal), "ab")
    for metrics in ({}, {"other": 1e9}, {goal.metric: short}, {goal.metric: float("nan")}):
        assert not play(engine, Measured(1, metrics))
    *cancelled, finish = play(engine, Measured(3, {goal.metric: reached}))
    assert finish == Finish(f"version 3 reached {goal.metric} {reached:g}")
    assert len(of(Cancel, cancelled)) == 2
    assert not play(engine, Measured(4, {goal.metric: reached}))


def test_a_measurement_without_a_target_means_nothing() -> None:
    engine = start(Rules(min_clients=1), "a")
    assert not play(engine, Measured(0, {"accuracy": 1.0}))


def test_an_accepted_update_survives_the_end_of_the_run() -> None:
    engine = start(Rules(min_clients=2), "ab")
    assert of(Accept, answer(engine, "a"))
    play(engine, Stopped())
    assert list(engine.ready) == [1]
