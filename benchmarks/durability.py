"""What durability costs: updates acknowledged per second with and without it, and flushes per round.

Everything of a coordinator but the network: engine, central update, journal, flows. An update is
acknowledged when the commit that holds it returns; `groups` says how many wait for one commit.
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.harness import Contender, race, report
from fedecado.common.layout import Layout
from fedecado.server.algorithms import MemoryVectors
from fedecado.server.federation import Federation, Result
from fedecado.server.rounds import Engine, Enrolled, Rules, UpdateArrived
from fedecado.server.store import Driver, Recipe, Store, create

N = 20
"""Clients, all of them active in every round."""


class Run:
    """Rounds one after the other, on a disk or in memory."""

    def __init__(self, d: int, group: int | None, folder: Path | None) -> None:
        layout, rules = Layout.flat(d), Rules(min_clients=N, min_updates=N, max_rounds=None)
        recipe, initial = Recipe(layout, "fedecado", rules), np.zeros(d, np.float32)
        self._group, self.store = group, None
        if folder is None:
            federation = Federation(Engine(rules), recipe.make_algorithm(), layout, initial, MemoryVectors())
            self._driver = Driver(federation)
        else:
            created = create(folder, recipe, initial)
            self._driver, self.store = created.driver, created.store
        self.rounds = 0
        draw = np.random.default_rng(0)
        self._moves = [draw.standard_normal(d, dtype=np.float32) for _ in range(N)]
        for i in range(N):
            self._happen(Enrolled(f"client-{i:02}", 10))
        self._acknowledge()

    def round(self) -> None:
        """Everyone reports once, and the model that follows is made."""
        engine, federation = self._driver.engine, self._driver.federation
        for i, task in enumerate(engine.running()):
            result = Result(federation.central + self._moves[i], time=0.1, curvature=1.0)
            self._happen(UpdateArrived(engine.tasks[task].client, task), result)
            if self._group is not None and (i + 1) % self._group == 0:
                self._acknowledge()
        closed = self._driver.closed
        assert closed is not None
        self._happen(closed.event)
        self._acknowledge()
        self.rounds += 1

    def _happen(self, event: object, result: Result | None = None) -> None:
        store, closed = self.store, self._driver.closed
        outcome = (
            None if store is None or closed is None else store.outcome_of(self._driver.federation, closed)
        )
        self._driver.handle(event, result)  # type: ignore[arg-type]  # events of all kinds pass here
        if store is not None:
            store.append(event, result, outcome)  # type: ignore[arg-type]  # likewise

    def _acknowledge(self) -> None:
        if self.store is not None:
            self.store.commit()


def run(quick: bool) -> None:
    for d in (10_000,) if quick else (10_000, 1_000_000):
        _compare(d, repeats=5 if quick else 15)


def _compare(d: int, repeats: int) -> None:
    scratch = Path(tempfile.mkdtemp(prefix="fedecado-durability-", dir=Path.cwd()))  # /tmp may be memory
    try:
        runs = {
            "not durable": Run(d, None, None),
            "a commit per round": Run(d, N, scratch / "round"),
            "a commit per 4 updates": Run(d, 4, scratch / "four"),
            "a commit per update": Run(d, 1, scratch / "each"),
        }
        contenders = [Contender(name, one.round) for name, one in runs.items()]
        race(contenders, repeats)
        rates = {c.name: round(N / c.median) for c in contenders}
        flushes = {name: _flushes(one) for name, one in runs.items()}
        report(f"durability_{d}", contenders, n=N, d=d, updates_per_second=rates, flushes_per_round=flushes)
        for one in runs.values():
            if one.store is not None:
                one.store.close()
    finally:
        shutil.rmtree(scratch)


def _flushes(one: Run) -> float:
    store: Store | None = one.store
    return 0.0 if store is None else round(store.flushes / one.rounds, 1)
