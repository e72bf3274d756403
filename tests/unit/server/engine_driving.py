"""Driving an engine by hand, for the tests of its rules."""

from typing import TypeVar

from fedecado.server.rounds import Effect, Engine, Enrolled, Event, Rules, UpdateArrived

E = TypeVar("E")


def play(engine: Engine, *events: Event) -> list[Effect]:
    """All effects of these events."""
    return [effect for event in events for effect in engine.handle(event)]


def of(kind: type[E], effects: list[Effect]) -> list[E]:
    """The effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def start(rules: Rules, clients: str) -> Engine:
    """An engine whose clients `a`, `b`, ... hold the tasks 1, 2, ..."""
    engine = Engine(rules)
    play(engine, *(Enrolled(client, 10) for client in clients))
    assert [engine.tasks[task].client for task in engine.running()] == list(clients)
    return engine


def answer(engine: Engine, *clients: str) -> list[Effect]:
    """Let clients deliver the tasks they hold; a string of letters names several."""
    named = [name for client in clients for name in ([client] if client in engine.roster else client)]
    return play(engine, *(UpdateArrived(name, engine.roster[name].task or 0) for name in named))
