"""A run executed once more from its record, and compared with what it did, up to the first difference.

With the updates kept (`Retention.inputs`) everything is computed again from where the record begins.
Without them only what the engine decided is; vectors are there since the last checkpoint.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, final

from fedecado.common.errors import FedecadoError
from fedecado.server.federation import Result
from fedecado.server.rounds import Aggregated, Discarded, Engine, Event
from fedecado.server.store import history, records
from fedecado.server.store.codec import NOTE, RECIPE, decode_row, from_json, to_json
from fedecado.server.store.compare import Difference
from fedecado.server.store.compare import Place as Spot
from fedecado.server.store.inspection import reading
from fedecado.server.store.interior import held
from fedecado.server.store.loading import apply_recipe, read_sound_head, restored
from fedecado.server.store.outcome import input_digest, outcome_of
from fedecado.server.store.overlay import Overlay
from fedecado.server.store.recipe import Recipe
from fedecado.server.store.replay import Driver
from fedecado.server.store.store import Opened
from fedecado.server.store.vault import Place, Vault
from fedecado.server.store.vectors import FileVectors

Row = tuple[str, dict[str, Any], Place | None]


@dataclass(slots=True)
class Replayed:
    """How a replay went."""

    run_id: str
    algorithm: str
    begins: int
    """Events that came before the record."""
    complete: bool
    """Whether the updates are there, so that all rounds of the record are computed again."""
    events: int = 0
    decided: int = 0
    """Rounds whose tasks were decided again."""
    computed: int = 0
    """Of those, rounds whose model was computed again, too."""
    updates: int = 0
    """Updates whose digest was taken again."""
    difference: Difference | None = None


def replay_run(folder: Path, watch: Callable[[int], None] = lambda _: None) -> Replayed:
    """Execute a stopped run again; `watch` hears the number of each round. The folder is only read."""
    with reading(folder) as opened, tempfile.TemporaryDirectory(prefix="fedecado-replay-") as scratch:
        rerun = _Rerun(opened, Path(scratch), watch)
        rerun.told.difference = next(rerun.differences(), None)
        return rerun.told


@final
class _Rerun:
    def __init__(self, opened: Opened, scratch: Path, watch: Callable[[int], None]) -> None:
        self._connection, self._vault = opened.connection, opened.vault
        self._scratch, self._watch = scratch, watch
        self._head = read_sound_head(self._connection)
        self._origin = records.read_head(self._connection, "origin")
        first = self._origin or self._head
        complete = self._origin is not None and history.has_inputs(self._connection)
        self.told = Replayed(first.run_id, first.recipe.algorithm, first.sequence, complete)
        self._at = first.sequence

    def differences(self) -> Iterator[Difference]:
        """All of them, though what comes after the first may only follow from it."""
        head, origin = self._head, self._origin
        since = records.read_events(self._connection, head.sequence)
        if origin is None:
            yield from self._computed(head, since)
            return
        before = records.read_events(self._connection, origin.sequence, "history")
        if self.told.complete:
            yield from self._computed(origin, chain(before, since))
        else:
            yield from self._decided(origin, before)
            yield from self._computed(head, since)

    def _decided(self, origin: records.Head, rows: Iterator[Row]) -> Iterator[Difference]:
        """Only the engine, which needs no vectors."""
        engine = Engine.restore(origin.recipe.rules, origin.engine)
        for kind, payload, _ in self._counted(rows):
            if kind == RECIPE:
                engine.rules = Recipe.load(payload).rules
            if kind in (RECIPE, NOTE):
                continue
            event, _, beside = decode_row(kind, payload, None)
            if isinstance(event, Aggregated) and "outcome" in beside:
                self._told_round(engine)
                found = {"round": engine.round, "tasks": list(engine.closing)}
                recorded = {name: beside["outcome"].get(name) for name in found}
                yield from self._spot(engine).parts("", recorded, found)
            yield from self._handled(engine, engine.handle, event)
        yield from self._engines(engine)

    def _computed(self, start: records.Head, rows: Iterator[Row]) -> Iterator[Difference]:
        """Engine and vectors."""
        clients = self._overlay(start)
        again = start is self._origin
        table: Literal["state", "origin_state"] = "origin_state" if again else "state"
        driver = Driver(restored(self._connection, self._vault, start, clients, table))
        if again and self._at == self._head.sequence:
            yield from self._checkpoints(driver, clients)
        for kind, payload, place in self._counted(rows):
            if kind == RECIPE:
                apply_recipe(driver.federation, Recipe.load(payload))
            elif kind != NOTE:
                state = None if place is None else self._vault.map(place)
                event, result, beside = decode_row(kind, payload, state)
                yield from self._inputs(driver.engine, event, result, beside)
                yield from self._outcomes(driver, clients, event, beside)
                yield from self._handled(driver.engine, partial(driver.handle, result=result), event)
            if self._at == self._head.sequence:
                yield from self._checkpoints(driver, clients)

    def _counted(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            self._at += 1
            self.told.events += 1
            yield row

    def _overlay(self, start: records.Head) -> Overlay:
        if start is self._origin:
            found = records.read_state(self._connection, "client", "origin_state")
            places: Mapping[str, Place] = {client: place for client, (_, place) in found.items()}
        else:
            places = records.read_clients(self._connection)
        return Overlay(self._vault, places, FileVectors(Vault(self._scratch)))

    def _spot(self, engine: Engine) -> Spot:
        return Spot(self._at, engine.round)

    def _told_round(self, engine: Engine) -> None:
        self.told.decided += 1
        self._watch(engine.round)

    def _inputs(
        self, engine: Engine, event: Event, result: Result | None, beside: Mapping[str, Any]
    ) -> Iterator[Difference]:
        if result is not None and "digest" in beside:
            self.told.updates += 1
            client = str(getattr(event, "client", ""))
            found = input_digest(result, like=beside["digest"])
            yield from self._spot(engine).values("digest of its update", beside["digest"], found, client)

    def _outcomes(
        self, driver: Driver, clients: Overlay, event: Event, beside: Mapping[str, Any]
    ) -> Iterator[Difference]:
        if not isinstance(event, Aggregated | Discarded):
            return
        spot, closed = self._spot(driver.engine), driver.closed
        now = None if closed is None else closed.event
        if closed is None or type(now) is not type(event):
            yield from spot.values("what became of the round", event, now or "it is still open")
            return
        self._told_round(driver.engine)
        self.told.computed += 1
        made = outcome_of(driver.federation, closed, clients)
        if made is not None and "outcome" in beside:
            recorded = beside["outcome"]
            yield from spot.outcomes(recorded, made.dump(recorded.get("central")))
        yield from spot.values("what the engine was told", event, now)

    def _handled(
        self, engine: Engine, handle: Callable[[Event], object], event: Event
    ) -> Iterator[Difference]:
        spot = self._spot(engine)
        try:
            handle(event)
        except FedecadoError as error:
            yield from spot.values(f"the event {event}", "was handled", str(error))

    def _engines(self, engine: Engine) -> Iterator[Difference]:
        found = from_json(to_json(engine.snapshot()), "the engine")
        yield from self._spot(engine).parts("the engine's", self._head.engine, found)

    def _checkpoints(self, driver: Driver, clients: Overlay) -> Iterator[Difference]:
        """The state as a whole, where the last checkpoint holds it."""
        yield from self._engines(driver.engine)
        spot, found = self._spot(driver.engine), held(driver.federation)
        yield from spot.parts("", self._head.scalars, found.scalars)
        for role, vectors in (("algorithm", found.algorithm), ("version", found.versions)):
            stored = records.read_state(self._connection, role)
            recorded = {name: self._vault.map(place) for name, (_, place) in stored.items()}
            yield from spot.vectors(role, recorded, {str(name): vector for name, vector in vectors.items()})
        places = records.read_clients(self._connection)
        for client in sorted({*places, *clients.clients()}):
            was = places[client].crc if client in places else None
            yield from spot.values("checksum of its vector", was, clients.checksum(client), client)
