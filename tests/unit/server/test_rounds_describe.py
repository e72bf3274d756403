"""The engine says what it waits for."""

from fedecado.server.rounds import (
    DeadlinePassed,
    Disconnected,
    Engine,
    Enrolled,
    Event,
    LeaseExpired,
    Left,
    Paused,
    Rules,
    Stopped,
    TaskFailed,
    UpdateArrived,
    describe,
)


def after(rules: Rules, *events: Event) -> str:
    engine = Engine(rules)
    for event in events:
        engine.handle(event)
    return describe(engine)


def enrolled(clients: str) -> list[Event]:
    return [Enrolled(client, 10) for client in clients]


def test_before_enough_clients_are_there() -> None:
    assert after(Rules(min_clients=3)) == "waiting for clients: 0 connected, 3 needed to start a round"
    said = after(Rules(min_clients=3), *enrolled("ab"))
    assert said == "waiting for clients: 2 connected, 3 needed to start a round"


def test_while_clients_work() -> None:
    said = after(Rules(min_clients=3, min_updates=2), *enrolled("abc"), UpdateArrived("b", 2))
    assert said == "round 1: 1 update in; at least 1 more needed; waiting for a, c"
    said = after(Rules(min_clients=3), *enrolled("abc"), UpdateArrived("b", 2), UpdateArrived("a", 1))
    assert said == "round 1: 2 updates in; waiting for c"


def test_a_long_list_of_clients_is_cut() -> None:
    said = after(Rules(min_clients=8), *enrolled("hgfedcba"))
    assert said == "round 1: 0 updates in; at least 1 more needed; waiting for a, b, c, d, e and 3 more"


def test_away_and_overdue_and_resting_clients_are_named() -> None:
    rules = Rules(min_clients=3, min_updates=3)
    said = after(rules, *enrolled("abc"), Disconnected("a"), LeaseExpired(2), TaskFailed("c", 3))
    assert said == (
        "round 1: 0 updates in; at least 3 more needed; a away with a task; b overdue, still welcome; "
        "c resting after a failed task; waiting for a client that is free to work"
    )


def test_after_the_deadline() -> None:
    rules = Rules(min_clients=2, min_updates=2, deadline=1)
    said = after(rules, *enrolled("ab"), UpdateArrived("a", 1), DeadlinePassed(1))
    assert said == (
        "round 1: 1 update in; at least 1 more needed; the deadline has passed; b overdue, still welcome; "
        "waiting for a client that is free to work"
    )


def test_when_everyone_left() -> None:
    said = after(Rules(), *enrolled("a"), Left("a"))
    assert said == "round 1: 0 updates in; at least 1 more needed; waiting for a client that is free to work"


def test_while_aggregating() -> None:
    said = after(Rules(min_clients=2), *enrolled("ab"), UpdateArrived("a", 1), UpdateArrived("b", 2))
    assert said == "round 1: computing the central update from 2 updates"


def test_while_paused() -> None:
    assert after(Rules(), Paused(), *enrolled("a")) == "paused; resume to start the next round"
    said = after(Rules(), *enrolled("a"), Paused())
    assert said == (
        "round 1: 0 updates in; at least 1 more needed; waiting for a; paused, so no new task is handed out"
    )


def test_at_the_end() -> None:
    assert after(Rules(), *enrolled("a"), Stopped("enough")) == "finished: enough"
