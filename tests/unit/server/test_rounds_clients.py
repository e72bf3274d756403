"""Clients that repeat themselves, fail, vanish, come back or leave."""

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
    Disconnected,
    Engine,
    Enrolled,
    Event,
    LeaseExpired,
    Left,
    Refuse,
    Rules,
    StartTimer,
    Stopped,
    TaskFailed,
    UpdateArrived,
)


def test_a_repeated_update_is_accepted_as_a_duplicate_and_counts_once() -> None:
    engine = start(Rules(min_clients=2), "ab")
    again = UpdateArrived("a", 1)
    assert of(Accept, play(engine, again)) == [Accept(1, "a")]
    duplicate = [Accept(1, "a", duplicate=True)]
    assert play(engine, again) == duplicate
    assert of(CloseRound, answer(engine, "b")) == [CloseRound(1, (1, 2))]
    assert play(engine, again) == duplicate
    play(engine, Aggregated(1.0))
    assert play(engine, again) == duplicate
    assert not engine.ready
    play(engine, Stopped())
    assert play(engine, again) == duplicate


def test_an_update_for_another_clients_task_is_refused() -> None:
    engine = start(Rules(min_clients=2), "ab")
    answer(engine, "b")
    (refused,) = play(engine, UpdateArrived("b", 1))  # an older number than the one b delivered
    assert isinstance(refused, Refuse)
    assert list(engine.ready) == [2]
    assert engine.running() == [1]


def test_an_unknown_task_is_refused() -> None:
    engine = start(Rules(min_clients=1), "a")
    (refused,) = play(engine, UpdateArrived("a", 99))
    assert isinstance(refused, Refuse)
    assert "task 99 is not open for 'a'" in refused.reason


def test_an_update_of_a_cancelled_task_is_refused_also_after_a_newer_one_counted() -> None:
    engine = start(Rules(min_clients=2, target_updates=1, max_staleness=0), "ab")
    answer(engine, "a")
    assert of(Cancel, play(engine, Aggregated(1.0))) == [Cancel(2, "b", "its version is too old")]
    answer(engine, "b")
    (refused,) = play(engine, UpdateArrived("b", 2))
    assert isinstance(refused, Refuse)


def test_an_update_after_the_end_is_told_that_the_run_is_over() -> None:
    engine = start(Rules(min_clients=1), "a")
    play(engine, Stopped("enough"))
    assert play(engine, UpdateArrived("a", 1)) == [Refuse(1, "a", "the run is over: enough")]


@pytest.mark.parametrize(
    "event",
    [Disconnected("x"), Left("x"), UpdateArrived("x", 1), TaskFailed("x", 1), Enrolled("x", 0)],
    ids=lambda event: type(event).__name__,
)
def test_an_event_that_makes_no_sense_raises_and_changes_nothing(event: Event) -> None:
    engine = start(Rules(min_clients=1), "a")
    before = engine.snapshot()
    with pytest.raises(RoundError, match="client 'x'"):
        engine.handle(event)
    assert engine.snapshot() == before


def test_a_client_that_returns_with_its_task_goes_on_with_it() -> None:
    engine = start(Rules(min_clients=2, min_updates=2), "ab")
    play(engine, Disconnected("a"))
    assert engine.running() == [2]
    assert not of(Assign, play(engine, Enrolled("a", 10, (1,))))
    assert engine.running() == [1, 2]
    assert of(CloseRound, answer(engine, "ab")) == [CloseRound(1, (1, 2))]


def test_a_client_that_returns_without_its_task_is_asked_anew() -> None:
    engine = start(Rules(min_clients=2, min_updates=2), "ab")
    play(engine, Disconnected("a"))
    assert [a.client for a in of(Assign, play(engine, Enrolled("a", 10)))] == ["a"]
    assert engine.running() == [2, 3]
    (refused,) = play(engine, UpdateArrived("a", 1))
    assert isinstance(refused, Refuse)


def test_a_returning_client_is_told_what_became_of_its_tasks_before_it_is_asked() -> None:
    engine = start(Rules(min_clients=2, min_updates=2), "ab")
    answer(engine, "a")
    assert play(engine, Disconnected("a"), Enrolled("a", 10, (1,))) == [Accept(1, "a", duplicate=True)]
    play(engine, Disconnected("b"), Enrolled("b", 10))  # task 2 is gone, task 3 replaces it
    effects = play(engine, Enrolled("b", 10, (2, 99)))
    assert [type(effect) for effect in effects] == [Cancel, Cancel, Assign]
    assert [effect.task for effect in of(Cancel, effects)] == [2, 99]


def test_an_update_that_outran_the_news_of_its_broken_connection_counts() -> None:
    engine = start(Rules(min_clients=2), "ab")
    play(engine, Disconnected("a"))
    assert of(Accept, play(engine, UpdateArrived("a", 1))) == [Accept(1, "a")]
    assert engine.roster.idle == []


def test_an_expired_lease_is_not_waited_for_but_its_update_is_welcome() -> None:
    engine = Engine(Rules(min_clients=2, lease=60))
    effects = play(engine, Enrolled("a", 10), Enrolled("b", 10))
    assert of(StartTimer, effects) == [StartTimer(60, 1, 1), StartTimer(60, 1, 2)]
    play(engine, LeaseExpired(1))
    assert engine.running() == [2]
    assert of(Accept, answer(engine, "a"))
    assert of(CloseRound, answer(engine, "b")) == [CloseRound(1, (1, 2))]
    assert not play(engine, LeaseExpired(2))


def test_a_new_connection_does_not_renew_a_task_whose_time_is_over() -> None:
    engine = start(Rules(min_clients=2, lease=60), "ab")
    play(engine, LeaseExpired(1), Disconnected("a"), Enrolled("a", 10, (1,)))
    assert engine.running() == [2]
    assert of(CloseRound, answer(engine, "b")) == [CloseRound(1, (2,))]
    play(engine, Aggregated(1.0))
    assert of(Accept, answer(engine, "a")) == [Accept(1, "a")]


def test_a_lease_ends_also_while_its_client_is_away() -> None:
    engine = start(Rules(min_clients=2, min_updates=2, lease=60), "ab")
    play(engine, Disconnected("a"), LeaseExpired(1), Enrolled("a", 10, (1,)))
    assert engine.running() == [2]


def test_the_next_round_does_not_wait_for_a_task_of_the_last_that_came_back() -> None:
    engine = start(Rules(min_clients=1, target_updates=1), "a")
    play(engine, Enrolled("b", 10))
    answer(engine, "a")
    play(engine, Aggregated(1.0))
    answer(engine, "a")
    overdue = engine.roster["b"].task
    assert overdue is not None
    play(engine, Aggregated(1.0), Disconnected("b"), Enrolled("b", 10, (overdue,)))
    assert {engine.tasks[task].client for task in engine.running()} == {"a"}


def test_a_failed_client_rests_and_is_asked_again() -> None:
    engine = start(Rules(min_clients=1, retry=7), "a")
    effects = play(engine, TaskFailed("a", 1))
    assert effects == [StartTimer(7, 1, 2)]
    assert of(Assign, play(engine, LeaseExpired(2))) == [Assign(3, "a", 0, 1)]


def test_neither_the_old_lease_nor_a_new_connection_shortens_a_rest() -> None:
    engine = start(Rules(min_clients=1, lease=60), "a")
    (rest,) = of(StartTimer, play(engine, TaskFailed("a", 1)))
    assert not play(engine, LeaseExpired(1))
    assert not play(engine, Disconnected("a"), Enrolled("a", 10))
    assert rest.task is not None
    assert of(Assign, play(engine, LeaseExpired(rest.task)))


def test_a_stream_client_rests_also_when_its_task_is_from_an_earlier_round() -> None:
    engine = start(Rules(mode="stream", min_clients=2, target_updates=1), "ab")
    answer(engine, "a")
    play(engine, Aggregated(1.0))
    assert not of(Assign, play(engine, TaskFailed("b", 2)))


def test_a_failure_of_a_task_that_is_not_open_means_nothing() -> None:
    engine = start(Rules(min_clients=2), "ab")
    assert not play(engine, TaskFailed("a", 2))
    answer(engine, "a")
    assert not play(engine, TaskFailed("a", 1))
    assert list(engine.ready) == [1]


def test_a_client_that_leaves_takes_its_open_task_along() -> None:
    engine = start(Rules(min_clients=2), "ab")
    answer(engine, "a")
    assert of(CloseRound, play(engine, Left("b"))) == [CloseRound(1, (1,))]
    assert engine.enrolled == 1


def test_a_client_that_leaves_takes_its_update_out_of_the_open_round() -> None:
    engine = start(Rules(min_clients=2), "ab")
    answer(engine, "a")
    play(engine, Left("a"))
    assert of(CloseRound, answer(engine, "b")) == [CloseRound(1, (2,))]


def test_an_update_stays_in_the_round_being_aggregated_when_its_client_leaves() -> None:
    engine = start(Rules(min_clients=2), "ab")
    answer(engine, "ab")
    play(engine, Left("a"))
    assert engine.closing == (1, 2)
    play(engine, Aggregated(1.0), Enrolled("a", 10))
    assert engine.version == 1
    assert not {1, 2} & engine.tasks.keys()


def test_an_update_does_not_count_twice_when_its_client_leaves_and_returns() -> None:
    engine = start(Rules(min_clients=2), "ab")
    answer(engine, "ab")
    play(engine, Left("a"), Enrolled("a", 10, (1,)))
    (refused,) = play(engine, UpdateArrived("a", 1))
    assert isinstance(refused, Refuse)
    assert not engine.ready


def test_a_resting_client_that_leaves_and_returns_starts_afresh() -> None:
    engine = start(Rules(min_clients=1), "a")
    play(engine, TaskFailed("a", 1), Left("a"))
    assert not engine.resting
    assert of(Assign, play(engine, Enrolled("a", 10)))
    assert not play(engine, LeaseExpired(2))


def test_a_client_overdue_at_the_deadline_is_not_asked_again_until_it_delivers() -> None:
    engine = start(Rules(min_clients=2, deadline=30), "ab")
    answer(engine, "a")
    play(engine, DeadlinePassed(1))
    assert [a.client for a in of(Assign, play(engine, Aggregated(1.0)))] == ["a"]
    answer(engine, "ab")
    play(engine, DeadlinePassed(2))
    assert [a.client for a in of(Assign, play(engine, Aggregated(1.0)))] == ["a"]  # b's update waits
    assert list(engine.ready) == [2]
