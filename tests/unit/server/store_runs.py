"""Runs to crash: random events with results, driven through a store, and what has to be equal after."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedecado.common.checksum import crc32
from fedecado.common.errors import RoundError
from fedecado.common.layout import Entry, Layout
from fedecado.server.algorithms import AlgorithmName, MemoryVectors, Robust
from fedecado.server.algorithms.vectors import RESPONSE
from fedecado.server.federation import Federation, Result
from fedecado.server.rounds import (
    Aggregated,
    Assign,
    Banned,
    Cancel,
    DeadlinePassed,
    Disconnected,
    Effect,
    Engine,
    Enrolled,
    Event,
    LeaseExpired,
    Left,
    Measured,
    Paused,
    Resumed,
    Rules,
    TaskFailed,
    Unbanned,
    UpdateArrived,
)
from fedecado.server.store import Driver, Recipe, Recovered, Store, counts, create, held

LAYOUT = Layout((Entry("w", (7,)), Entry("running_mean", (2,), "buffer")))
MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # noqa: S108 - for folders of random names
"""A disk whose flushes cost nothing, where there is one."""

CLIENTS = [f"client-{i}" for i in range(6)]
Step = tuple[Event, Result | None]


def recipe(
    algorithm: AlgorithmName = "fedecado",
    layout: Layout = LAYOUT,
    robust: Robust | None = None,
    **rules: Any,
) -> Recipe:
    defaults = {"mode": "stream", "active": 4, "target_updates": 2, "max_rounds": None, "deadline": 9.0}
    return Recipe(layout, algorithm, Rules(**{**defaults, **rules}), robust=robust or Robust())


def initial(layout: Layout = LAYOUT) -> Any:
    return np.linspace(-1, 1, layout.size, dtype=layout.dtype)


@dataclass
class World:
    """Clients that answer as a seed says; it remembers every event that the engine took."""

    driver: Driver
    chance: random.Random
    bans: bool = False
    """Whether clients are banned, too; apart, because stored runs know the events of a seed."""
    steps: list[Step] = field(default_factory=list)
    open: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def run(self, events: int) -> list[Step]:
        for client in CLIENTS:
            self.tell(Enrolled(client, 5 + 3 * len(self.steps)))
        while len(self.steps) < events:
            self.tell(*self.next())
        return self.steps

    def next(self) -> Step:
        closed, chance = self.driver.closed, self.chance
        if closed is not None and chance.random() < 0.6:
            return closed.event, None
        if self.open and chance.random() < 0.7:
            client, task = chance.choice(sorted(self.open.items()))
            return UpdateArrived(client, task), self.result(task)
        client = chance.choice(CLIENTS)
        events: list[Event] = [
            Enrolled(client, chance.randint(1, 40), (self.open[client],) if client in self.open else ()),
            DeadlinePassed(self.driver.engine.round),
            LeaseExpired(chance.randint(1, 30)),
            Measured(self.driver.engine.version, {"loss": float("nan"), "accuracy": 0.1}),
            UpdateArrived(client, chance.randint(1, 30)),
            Resumed(),
        ]
        if client not in self.gone:
            events += [
                Disconnected(client),
                Left(client),
                TaskFailed(client, self.open.get(client, 1)),
                Paused(),
            ]
        if self.bans:
            events.append(Unbanned(client) if client in self.gone else Banned(client, "why not"))
        event = chance.choice(events)
        if isinstance(event, UpdateArrived) and event.task in self.driver.engine.tasks:
            return event, self.result(event.task)
        return event, None

    def result(self, task: int) -> Result:
        federation, chance = self.driver.federation, self.chance
        start = federation.state_of(self.driver.engine.tasks[task].version)
        assert start is not None
        noise = np.random.default_rng(chance.getrandbits(32)).standard_normal(len(start))
        return Result(
            (start + 0.1 * noise).astype(start.dtype),
            time=chance.uniform(0.01, 1.0),
            curvature=chance.uniform(0, 2),
            steps=chance.randint(1, 9),
            loss_after=chance.choice([float("nan"), 0.25]),
        )

    def tell(self, event: Event, result: Result | None = None) -> None:
        try:
            effects = self.driver.handle(event, result)
        except RoundError:
            return  # such as an update of a client that left
        if isinstance(event, Left | Banned):
            self.gone.add(event.client)
        elif isinstance(event, Enrolled):
            self.gone.discard(event.client)
        self.steps.append((event, result if counts(effects) else None))
        self.follow(effects)

    def follow(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Assign):
                self.open[effect.client] = effect.task
            elif isinstance(effect, Cancel) and self.open.get(effect.client) == effect.task:
                del self.open[effect.client]
        tasks = self.driver.engine.tasks
        self.open = {c: t for c, t in self.open.items() if t in tasks and tasks[t].phase != "ready"}


def uninterrupted(made: Recipe, seed: int, events: int, *, bans: bool = False) -> World:
    """A run in memory that nothing happens to."""
    engine = Engine(made.rules)
    federation = Federation(engine, made.make_algorithm(), made.layout, initial(made.layout), MemoryVectors())
    world = World(Driver(federation), random.Random(seed), bans)
    world.run(events)
    return world


def landed(store: Store, result: Result) -> Result:
    """The result as it comes in over the network, its vector on the way to the disk."""
    landing = store.land(result.state.nbytes, LAYOUT.dtype)
    assert landing is not None
    landing.vector[:], landing.crc = result.state, crc32(result.state.tobytes())
    for received in range(1, result.state.nbytes + 1):
        landing.reached(received)
    return replace(result, state=landing.vector, landing=landing)


def play(run: Recovered, steps: list[Step], *, land: bool = False) -> Iterator[int]:
    """Drive a stored run through known steps; yields each one's number after it was appended."""
    for event, sent in steps:
        result = landed(run.store, sent) if land and sent is not None else sent
        closed, outcome = run.driver.closed, None
        if closed is not None and isinstance(event, Aggregated):
            outcome = run.store.outcome_of(run.federation, closed)
        run.driver.handle(event, result)
        yield run.store.append(event, result, outcome)


def settled(run: Recovered) -> Recovered:
    """Between two rounds."""
    while run.driver.closed is not None:
        list(play(run, [(run.driver.closed.event, None)]))
    return run


def checkpoint(run: Recovered, **content: Any) -> None:
    run.store.checkpoint(run.store.capture(run.federation, **content))


def begun(folder: Path, made: Recipe, **options: Any) -> Recovered:
    return create(folder, made, initial(made.layout), **options)


def fingerprint(federation: Federation) -> dict[str, Any]:
    """Everything of a run, down to the last bit."""
    content = held(federation)
    state = federation.content().state
    vectors = getattr(state, "flows", getattr(state, "vectors", None))
    names = [*CLIENTS, *(RESPONSE + client for client in CLIENTS)]
    own = {name: vectors.get(name) for name in names} if vectors is not None else {}
    return {
        "engine": federation.engine.snapshot(),
        "scalars": content.scalars,
        "algorithm": {name: vector.tobytes() for name, vector in content.algorithm.items()},
        "versions": {v: vector.tobytes() for v, vector in content.versions.items()},
        "updates": {task: (r.time, r.curvature, r.state.tobytes()) for task, r in content.updates.items()},
        "clients": {client: None if v is None else v.tobytes() for client, v in own.items()},
    }
