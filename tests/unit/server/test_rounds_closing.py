"""When a round closes, with what, and which versions are kept."""

import pytest
from engine_driving import answer, of, play, start

from fedecado.common.errors import RoundError
from fedecado.server.rounds import (
    Accept,
    Aggregated,
    Assign,
    Cancel,
    CloseRound,
    DeadlinePassed,
    Discarded,
    DropVersion,
    Engine,
    Enrolled,
    Event,
    Finish,
    Left,
    Refuse,
    Rules,
    StartTimer,
    UpdateArrived,
)


def test_a_round_closes_when_all_who_were_asked_have_answered() -> None:
    engine = start(Rules(min_clients=3), "abc")
    assert not of(CloseRound, answer(engine, "ca"))
    assert of(CloseRound, answer(engine, "b")) == [CloseRound(1, (3, 1, 2))]
    assert not engine.open


def test_a_round_closes_as_soon_as_its_target_is_met() -> None:
    engine = start(Rules(min_clients=3, target_updates=2), "abc")
    assert of(CloseRound, answer(engine, "ab")) == [CloseRound(1, (1, 2))]
    assert not engine.running()


def test_a_round_never_closes_with_fewer_than_min_updates() -> None:
    engine = start(Rules(min_clients=3, min_updates=3), "abc")
    answer(engine, "ab")
    assert not of(CloseRound, play(engine, Left("c"), DeadlinePassed(1)))
    play(engine, Enrolled("d", 10))
    assert of(CloseRound, answer(engine, "d")) == [CloseRound(1, (1, 2, 4))]


def test_a_round_closes_at_its_deadline_with_enough_updates() -> None:
    engine = Engine(Rules(min_clients=2, deadline=30))
    effects = play(engine, Enrolled("a", 10), Enrolled("b", 10))
    assert of(StartTimer, effects) == [StartTimer(30, 1)]
    answer(engine, "b")
    assert of(CloseRound, play(engine, DeadlinePassed(1))) == [CloseRound(1, (2,))]


def test_a_round_with_too_few_updates_at_its_deadline_closes_when_enough_are_in() -> None:
    engine = start(Rules(min_clients=3, min_updates=2, deadline=30), "abc")
    answer(engine, "a")
    assert not of(CloseRound, play(engine, DeadlinePassed(1)))
    assert engine.late
    assert of(CloseRound, answer(engine, "b")) == [CloseRound(1, (1, 2))]


def test_the_deadline_of_an_earlier_round_means_nothing() -> None:
    engine = start(Rules(min_clients=2, deadline=30), "ab")
    answer(engine, "ab")
    play(engine, Aggregated(1.0))
    answer(engine, "a")
    assert not play(engine, DeadlinePassed(1))
    assert not engine.late


def test_a_late_update_joins_the_next_round_with_its_true_start_version() -> None:
    engine = start(Rules(min_clients=3, target_updates=2), "abc")
    answer(engine, "ab")
    play(engine, Aggregated(1.0))
    assert of(Accept, answer(engine, "c")) == [Accept(3, "c")]
    assert engine.tasks[3].version == 0
    (closed,) = of(CloseRound, answer(engine, "a"))
    assert closed == CloseRound(2, (3, 4))
    assert engine.tasks[4].version == 1


def test_an_update_that_arrives_during_aggregation_counts_in_the_next_round() -> None:
    engine = start(Rules(min_clients=3, target_updates=2), "abc")
    answer(engine, "ab")
    assert of(Accept, answer(engine, "c")) == [Accept(3, "c")]
    assert engine.closing == (1, 2)
    effects = play(engine, Aggregated(1.0))
    assert [a.client for a in of(Assign, effects)] == ["a", "b"]
    assert list(engine.ready) == [3]


def test_a_version_is_dropped_exactly_when_its_last_user_is_gone() -> None:
    engine = start(Rules(min_clients=3, target_updates=2), "abc")
    assert not of(DropVersion, answer(engine, "ab"))
    assert not of(DropVersion, play(engine, Aggregated(1.0)))  # c still works from version 0
    assert not of(DropVersion, answer(engine, "ca"))  # and its update is being aggregated
    assert set(of(DropVersion, play(engine, Aggregated(1.0)))) == {DropVersion(0)}  # b works from version 1
    assert of(DropVersion, play(engine, Left("b"))) == [DropVersion(1)]


def test_the_newest_version_is_never_dropped() -> None:
    engine = start(Rules(min_clients=2), "ab")
    effects = play(engine, Left("a"), Left("b"))
    assert not engine.tasks
    assert not of(DropVersion, effects)


def test_a_task_is_cancelled_once_it_is_more_than_max_staleness_versions_behind() -> None:
    engine = start(Rules(min_clients=3, target_updates=2, max_staleness=1), "abc")
    answer(engine, "ab")
    assert not of(Cancel, play(engine, Aggregated(1.0)))
    answer(engine, "ab")
    effects = play(engine, Aggregated(1.0))
    assert of(Cancel, effects) == [Cancel(3, "c", "its version is too old")]
    assert DropVersion(0) in effects
    assert "c" in {a.client for a in of(Assign, effects)}
    (refused,) = of(Refuse, play(engine, UpdateArrived("c", 3)))
    assert "task 3" in refused.reason


def test_a_discarded_round_leaves_the_version_and_asks_again() -> None:
    engine = start(Rules(min_clients=2), "ab")
    answer(engine, "ab")
    effects = play(engine, Discarded())
    assert engine.version == 0
    assert [(a.client, a.version, a.round) for a in of(Assign, effects)] == [("a", 0, 2), ("b", 0, 2)]
    assert not of(DropVersion, effects)


def test_discarded_rounds_count_towards_the_last_round() -> None:
    engine = start(Rules(min_clients=1, max_rounds=1), "a")
    answer(engine, "a")
    assert of(Finish, play(engine, Discarded())) == [Finish("all 1 rounds are done")]


@pytest.mark.parametrize("event", [Aggregated(1.0), Discarded()])
def test_the_end_of_an_aggregation_is_reported_once(event: Event) -> None:
    engine = start(Rules(min_clients=2), "ab")
    with pytest.raises(RoundError, match="no round is being aggregated"):
        engine.handle(event)
