"""Who is asked, when, and who steps in for a lost task."""

import pytest
from engine_driving import answer, of, play
from hypothesis import given
from hypothesis import strategies as st

from fedecado.server.rounds import (
    Aggregated,
    Assign,
    CloseRound,
    DeadlinePassed,
    Disconnected,
    Engine,
    Enrolled,
    Event,
    LeaseExpired,
    Left,
    Rules,
    StartTimer,
    TaskFailed,
)

TEN = tuple(f"c{i}" for i in range(10))


def enrol(engine: Engine, *clients: str) -> list[Assign]:
    return of(Assign, play(engine, *(Enrolled(client, 10) for client in clients)))


def busy(engine: Engine) -> set[str]:
    return {engine.tasks[task].client for task in engine.running()}


def test_a_count_asks_so_many_clients() -> None:
    engine = Engine(Rules(active=4, min_clients=10))
    assigned = enrol(engine, *TEN)
    assert len(assigned) == len({a.client for a in assigned}) == 4
    assert [a.task for a in assigned] == [1, 2, 3, 4]  # 0 means something else on the wire
    assert {(a.version, a.round) for a in assigned} == {(0, 1)}


@pytest.mark.parametrize(("fraction", "asked"), [(1.0, 10), (0.5, 5), (0.26, 3), (0.01, 1)])
def test_a_fraction_asks_that_share_but_at_least_one(fraction: float, asked: int) -> None:
    engine = Engine(Rules(active=fraction, min_clients=10))
    assert len(enrol(engine, *TEN)) == asked


def test_a_count_above_the_enrolled_asks_everyone() -> None:
    assert len(enrol(Engine(Rules(active=50, min_clients=10)), *TEN)) == 10


@given(st.permutations(TEN), st.integers(0, 3))
def test_the_sample_depends_on_the_seed_and_not_on_the_order_of_enrolment(
    order: list[str], seed: int
) -> None:
    rules = Rules(active=3, min_clients=10, seed=seed)
    assert enrol(Engine(rules), *order) == enrol(Engine(rules), *TEN)


def test_seeds_and_rounds_draw_different_samples() -> None:
    def samples(seed: int) -> list[tuple[str, ...]]:
        engine = Engine(Rules(active=3, min_clients=10, seed=seed))
        drawn = [tuple(a.client for a in enrol(engine, *TEN))]
        for _ in range(5):
            answer(engine, *drawn[-1])
            drawn.append(tuple(a.client for a in of(Assign, play(engine, Aggregated(1.0)))))
        return drawn

    assert len(set(samples(0))) > 1
    assert samples(0) != samples(1)
    assert samples(1) == samples(1)


def test_no_round_starts_before_min_clients_are_connected() -> None:
    engine = Engine(Rules(min_clients=3))
    assert not enrol(engine, "a", "b")
    play(engine, Disconnected("a"))
    assert not enrol(engine, "c")
    assert engine.round == 0
    assert len(enrol(engine, "a")) == 3
    assert engine.round == 1


def test_later_rounds_start_with_whoever_is_there() -> None:
    engine = Engine(Rules(min_clients=3))
    enrol(engine, "a", "b", "c")
    play(engine, Disconnected("b"), Disconnected("c"))
    answer(engine, "a")
    assigned = of(Assign, play(engine, Aggregated(1.0)))
    assert [a.client for a in assigned] == ["a"]
    assert engine.round == 2


def test_a_weight_is_the_share_of_samples_over_their_mean() -> None:
    engine = Engine(Rules(min_clients=2))
    play(engine, Enrolled("a", 10), Enrolled("b", 30))
    assert {task.client: task.weight for task in engine.tasks.values()} == {"a": 0.5, "b": 1.5}
    play(engine, Enrolled("a", 30, (1,)))
    assert engine.roster.weight("a") == 1.0
    assert engine.tasks[1].weight == 0.5  # what the client was told


def test_a_round_asks_enough_clients_to_close() -> None:
    engine = Engine(Rules(active=1, min_updates=3, min_clients=10))
    assert len(enrol(engine, *TEN)) == 3


def test_a_lost_task_is_not_replaced_while_the_round_can_close_without() -> None:
    engine = Engine(Rules(active=3, min_updates=2, min_clients=10))
    first, second, third = enrol(engine, *TEN)
    assert not of(Assign, play(engine, Disconnected(first.client)))
    assert not of(Assign, answer(engine, second.client))
    (closed,) = of(CloseRound, answer(engine, third.client))
    assert closed.tasks == (second.task, third.task)


@pytest.mark.parametrize("how", ["disconnected", "left", "lease", "failed", "returned empty-handed"])
def test_a_lost_task_is_replaced_when_the_round_cannot_close_without(how: str) -> None:
    engine = Engine(Rules(active=3, min_updates=3, min_clients=10, lease=60))
    lost, *_ = enrol(engine, *TEN)
    events: dict[str, Event] = {
        "disconnected": Disconnected(lost.client),
        "left": Left(lost.client),
        "lease": LeaseExpired(lost.task),
        "failed": TaskFailed(lost.client, lost.task),
        "returned empty-handed": Enrolled(lost.client, 10),
    }
    (replacement,) = of(Assign, play(engine, events[how]))
    assert replacement.task not in (1, 2, 3)
    assert len(engine.running()) == 3


def test_replacements_after_the_deadline_get_a_deadline_of_their_own() -> None:
    engine = Engine(Rules(active=2, min_updates=2, min_clients=10, deadline=30))
    first, _ = enrol(engine, *TEN)
    answer(engine, first.client)
    effects = play(engine, DeadlinePassed(1))
    (replacement,) = of(Assign, effects)
    assert of(StartTimer, effects) == [StartTimer(30, 1)]
    assert engine.running() == [replacement.task]
    assert not engine.late
    play(engine, DeadlinePassed(1))
    assert len(engine.running()) == 1
    assert engine.running() != [replacement.task]


def test_a_client_that_joins_late_waits_for_the_next_round() -> None:
    engine = Engine(Rules())
    enrol(engine, "a")
    assert not enrol(engine, "b")
    answer(engine, "a")
    assert {a.client for a in of(Assign, play(engine, Aggregated(1.0)))} == {"a", "b"}


def test_a_stream_keeps_the_wanted_number_of_clients_busy() -> None:
    engine = Engine(Rules(mode="stream", active=4, target_updates=6, min_clients=10))
    enrol(engine, *TEN)
    for _ in range(5):
        before = busy(engine)
        assert len(before) == 4
        reporting = min(before)
        answer(engine, reporting)
        assert len(busy(engine) - before) == 1
    assert engine.open


def test_a_stream_closes_at_the_buffer_size_and_goes_on_with_the_rest() -> None:
    engine = Engine(Rules(mode="stream", active=1.0, target_updates=2, min_clients=4))
    enrol(engine, "a", "b", "c", "d")
    effects = answer(engine, "c", "a")
    (closed,) = of(CloseRound, effects)
    assert [engine.tasks[task].client for task in closed.tasks] == ["c", "a"]
    assert not of(Assign, effects)
    assert busy(engine) == {"b", "d"}
    effects = play(engine, Aggregated(1.0))
    assert [(a.client, a.version, a.round) for a in of(Assign, effects)] == [("a", 1, 2), ("c", 1, 2)]


def test_a_stream_takes_half_of_the_busy_clients_as_its_buffer_size() -> None:
    engine = Engine(Rules(mode="stream", active=6, min_clients=10))
    enrol(engine, *TEN)
    assert not of(CloseRound, answer(engine, *sorted(busy(engine))[:2]))
    assert of(CloseRound, answer(engine, min(busy(engine))))


def test_a_stream_never_holds_two_updates_of_a_client_in_a_round() -> None:
    engine = Engine(Rules(mode="stream", active=3, target_updates=3, min_clients=3, retry=5))
    enrol(engine, "a", "b", "c")
    assert not of(Assign, answer(engine, "a"))
    assert not of(Assign, play(engine, Disconnected("a"), Enrolled("a", 10)))
    answer(engine, "b", "c")
    play(engine, Aggregated(1.0))
    assert busy(engine) == {"a", "b", "c"}


def test_an_old_rest_does_not_let_a_client_into_a_round_twice() -> None:
    engine = Engine(Rules(mode="stream", active=3, target_updates=2, min_clients=3))
    enrol(engine, "a", "b", "c")
    (rest,) = of(StartTimer, play(engine, TaskFailed("a", 1)))
    answer(engine, "b", "c")
    play(engine, Aggregated(1.0))
    assert busy(engine) == {"a", "b", "c"}
    answer(engine, "a")
    assert rest.task is not None
    assert not of(Assign, play(engine, LeaseExpired(rest.task)))


def test_a_stream_closes_with_everyone_in_when_its_buffer_is_larger_than_the_fleet() -> None:
    engine = Engine(Rules(mode="stream", target_updates=10, min_clients=2))
    enrol(engine, "a", "b")
    assert not of(CloseRound, answer(engine, "a"))
    assert of(CloseRound, answer(engine, "b"))
