"""What the engine waits for, in words."""

from collections.abc import Iterable

from fedecado.server.rounds.engine import Engine
from fedecado.server.rounds.ledger import Phase

NAMED = 5
"""At most so many clients are named; the rest are counted."""


def describe(engine: Engine) -> str:
    """One sentence for logs, `status` and the progress display."""
    if engine.finished:
        return f"finished: {engine.finished}"
    if engine.closing:
        return f"round {engine.round}: computing the central update from {_updates(len(engine.closing))}"
    if not engine.open:
        if engine.paused:
            return "paused; resume to start the next round"
        return (
            f"waiting for clients: {engine.roster.connected} connected, "
            f"{engine.needed} needed to start a round"
        )
    return f"round {engine.round}: {_progress(engine)}"


def _progress(engine: Engine) -> str:
    said = [f"{_updates(len(engine.ready))} in"]
    missing = engine.rules.min_updates - len(engine.ready)
    if missing > 0:
        said.append(f"at least {missing} more needed")
    if engine.late:
        said.append("the deadline has passed")
    waited = [engine.tasks[task].client for task in engine.running()]
    if waited:
        said.append(f"waiting for {_names(waited)}")
    if away := _clients(engine, "away"):
        said.append(f"{_names(away)} away with a task")
    if overdue := _clients(engine, "overdue"):
        said.append(f"{_names(overdue)} overdue, still welcome")
    if engine.resting:
        said.append(f"{_names(engine.resting.values())} resting after a failed task")
    if engine.paused:
        said.append("paused, so no new task is handed out")
    elif not waited:
        said.append("waiting for a client that is free to work")
    return "; ".join(said)


def _clients(engine: Engine, phase: Phase) -> list[str]:
    return [task.client for task in engine.tasks.values() if task.phase == phase]


def _updates(count: int) -> str:
    return f"{count} update{'' if count == 1 else 's'}"


def _names(clients: Iterable[str]) -> str:
    named = sorted(clients)
    shown = ", ".join(named[:NAMED])
    return shown if len(named) <= NAMED else f"{shown} and {len(named) - NAMED} more"
