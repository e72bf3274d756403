"""An engine as plain values, and back.

What an engine derives (who is idle, which versions are in use) is derived again. Timers run in the
driver and are not part of it: after a restart, `timers` says which to start anew.
"""

from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveFloat, PositiveInt, ValidationError

from fedecado.common.errors import RoundError
from fedecado.server.rounds.effects import StartTimer
from fedecado.server.rounds.engine import Engine
from fedecado.server.rounds.ledger import Ledger, Phase, Task

E = TypeVar("E", bound=Engine)


class _Plain(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class _Client(_Plain):
    name: str
    samples: PositiveInt
    connected: bool
    task: PositiveInt | None
    last_done: PositiveInt | None
    asked: PositiveInt | None
    resting: PositiveInt | None


class _Task(_Plain):
    number: PositiveInt
    client: str
    version: NonNegativeInt
    round: PositiveInt
    weight: PositiveFloat
    phase: Phase


class _Snapshot(_Plain):
    format: Literal[1]
    round: NonNegativeInt
    open: bool
    late: bool
    draws: NonNegativeInt
    paused: bool
    finished: str | None
    version: NonNegativeInt
    next_number: PositiveInt
    clients: list[_Client]
    tasks: list[_Task]
    ready: list[PositiveInt]
    closing: list[PositiveInt]
    banned: dict[str, str] = {}
    """Absent in snapshots from before there were bans."""


def dump(engine: Engine) -> dict[str, Any]:
    """Everything but the rules; equal engines give equal values."""
    return {
        "format": 1,
        "round": engine.round,
        "open": engine.open,
        "late": engine.late,
        "draws": engine.draws,
        "paused": engine.paused,
        "finished": engine.finished,
        "version": engine.version,
        "next_number": engine.ledger.next_number,
        "clients": _dump_clients(engine),
        "tasks": [
            {
                "number": number,
                "client": task.client,
                "version": task.version,
                "round": task.round,
                "weight": task.weight,
                "phase": task.phase,
            }
            for number, task in engine.tasks.items()
        ],
        "ready": list(engine.ready),
        "closing": list(engine.closing),
        "banned": dict(sorted(engine.banned.items())),
    }


def load(engine: E, snapshot: dict[str, Any]) -> E:
    """Put what `dump` gave into a new engine."""
    try:
        saved = _Snapshot.model_validate(snapshot)
    except ValidationError as error:
        raise RoundError(f"not a snapshot of a round engine: {error}") from None
    _check(saved)
    engine.round, engine.open, engine.late, engine.draws = saved.round, saved.open, saved.late, saved.draws
    engine.paused, engine.finished = saved.paused, saved.finished
    engine.banned = dict(saved.banned)
    _load_ledger(engine, saved)
    _load_roster(engine, saved)
    return engine


def timers(engine: Engine) -> list[StartTimer]:
    """The timers that a restored engine counts on, each with its whole time."""
    rules, number = engine.rules, engine.round
    found = [StartTimer(rules.retry, number, rest) for rest in engine.resting]
    if engine.open and not engine.late and rules.deadline is not None:
        found.append(StartTimer(rules.deadline, number))
    if rules.lease is not None:
        waited = [task for task, record in engine.tasks.items() if record.phase in ("running", "away")]
        found += [StartTimer(rules.lease, number, task) for task in waited]
    return found


def _dump_clients(engine: Engine) -> list[dict[str, Any]]:
    asked = engine.roster.asked
    rests = {client: number for number, client in engine.resting.items()}
    return [
        {
            "name": name,
            "samples": client.samples,
            "connected": client.connected,
            "task": client.task,
            "last_done": client.last_done,
            "asked": asked.get(name),
            "resting": rests.get(name),
        }
        for name, client in sorted(engine.roster.clients.items())
    ]


def _load_ledger(engine: Engine, saved: _Snapshot) -> None:
    ledger = engine.ledger = Ledger(saved.version, saved.next_number)
    for task in saved.tasks:
        ledger.put(task.number, Task(**task.model_dump(exclude={"number"})))
    ledger.ready, ledger.closing = dict.fromkeys(saved.ready), tuple(saved.closing)


def _load_roster(engine: Engine, saved: _Snapshot) -> None:
    roster = engine.roster
    for client in saved.clients:
        roster.enrol(client.name, client.samples)
        roster[client.name].last_done = client.last_done
        roster.occupy(client.name, client.task)
        if not client.connected:
            roster.disconnect(client.name)
        if client.resting is not None:
            engine.resting[client.resting] = client.name
    roster.start_round({client.name: client.asked for client in saved.clients if client.asked is not None})


def _check(saved: _Snapshot) -> None:
    """Raise if the parts do not fit each other."""
    tasks = {task.number: task for task in saved.tasks}
    names = {client.name for client in saved.clients}
    _require(len(names) == len(saved.clients), "a client appears twice")
    _require(not names & saved.banned.keys(), "a banned client is enrolled")
    _require(len(tasks) == len(saved.tasks), "a task appears twice")
    held = {client.task: client.name for client in saved.clients if client.task is not None}
    opened = {task.number: task.client for task in saved.tasks if task.phase != "ready"}
    _require(held == opened, "open tasks and the clients that hold them differ")
    counted = sorted([*saved.ready, *saved.closing])
    _require(counted == sorted(tasks.keys() - opened.keys()), "ready tasks and the rounds' updates differ")
    asked = {client.name: client.asked for client in saved.clients}
    _require(
        all(asked.get(tasks[number].client) == number for number in saved.ready),
        "an update in the round has no client, or its client may be asked again",
    )
    _require(all(task.version <= saved.version for task in saved.tasks), "a task's version is still to come")
    numbers = [*tasks, *(client.resting or 0 for client in saved.clients)]
    _require(all(number < saved.next_number for number in numbers), "the next number was given out before")
    _require(not (saved.open and (saved.closing or saved.finished)), "the round is both open and closed")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise RoundError(f"not a snapshot of a round engine: {what}")
