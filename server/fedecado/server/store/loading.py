"""A run read back: its checkpoint, and the events since, handled once more."""

import sqlite3
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal, final

from fedecado.common.errors import FedecadoError, StoreError
from fedecado.common.layout import Vector
from fedecado.server.algorithms import ClientVectors
from fedecado.server.federation import Federation, Result
from fedecado.server.rounds import Aggregated, Discarded, Engine, Event
from fedecado.server.store import records
from fedecado.server.store.codec import NOTE, RECIPE, decode_result, decode_row
from fedecado.server.store.interior import Held, restore
from fedecado.server.store.recipe import Recipe
from fedecado.server.store.replay import Driver
from fedecado.server.store.vault import Place, Vault

_READERS: Final = 4


@final
class Loaded:
    """The run as the folder tells it; nothing is written but what `clients` writes."""

    def __init__(self, connection: sqlite3.Connection, vault: Vault, clients: ClientVectors) -> None:
        self.head = read_sound_head(connection)
        self.recipe = self.head.recipe
        self.notes: list[dict[str, Any]] = []
        self.rows = 0
        """Rows of the journal since the checkpoint."""
        self.drifted = 0
        """Rounds that came out with another last bit than they had."""
        self.driver = Driver(restored(connection, vault, self.head, clients))
        for kind, payload, place in records.read_events(connection, self.head.sequence):
            self.rows += 1
            self._replay(kind, payload, None if place is None else vault.map(place))

    def _replay(self, kind: str, payload: dict[str, Any], state: Vector | None) -> None:
        if kind == NOTE:
            self.notes.append(payload)
        elif kind == RECIPE:
            self.recipe = Recipe.load(payload)
            apply_recipe(self.driver.federation, self.recipe)
        else:
            event, result, _ = decode_row(kind, payload, state)
            self._happen(event, result)

    def _happen(self, event: Event, result: Result | None) -> None:
        sequence = self.head.sequence + self.rows
        if isinstance(event, Aggregated | Discarded):
            self._compare(event, sequence)
        try:
            self.driver.handle(event, result)
        except StoreError:
            raise
        except FedecadoError as error:
            raise StoreError(f"row {sequence} of the journal does not fit the run: {error}") from error

    def _compare(self, event: Aggregated | Discarded, sequence: int) -> None:
        """The engine hears what it heard then, also if a sum now ends in another bit."""
        now = None if self.driver.closed is None else self.driver.closed.event
        if type(now) is not type(event):
            raise StoreError(f"row {sequence} of the journal says {event}, the replay {now}; it was changed")
        self.drifted += now != event


def restored(
    connection: sqlite3.Connection,
    vault: Vault,
    head: records.Head,
    clients: ClientVectors,
    table: Literal["state", "origin_state"] = "state",
) -> Federation:
    """The federation of a checkpoint, or of the record's begin."""

    def mapped(role: str) -> dict[str, Vector]:
        found = records.read_state(connection, role, table)
        return {name: vault.map(place) for name, (_, place) in found.items()}

    updates = {int(task): state for task, state in mapped("update").items()}
    content = Held(
        scalars=head.scalars,
        algorithm=mapped("algorithm"),
        versions={int(version): state for version, state in mapped("version").items()},
        updates={task: decode_result(scalars, updates[task]) for task, scalars in head.updates.items()},
    )
    return restore(head.recipe, Engine.restore(head.recipe.rules, head.engine), content, clients)


def apply_recipe(federation: Federation, recipe: Recipe) -> None:
    """Go on under other rules and with other knobs."""
    federation.engine.rules = recipe.rules
    federation.change_algorithm(recipe.make_algorithm())


def read_sound_head(connection: sqlite3.Connection) -> records.Head:
    """The checkpoint of a database that is whole."""
    answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if answer != "ok":
        raise StoreError(f"the database is damaged ({answer}); restore the run's folder from a backup")
    head = records.read_head(connection)
    if head is None:
        raise StoreError("the run never began: it has no checkpoint; remove its folder and start again")
    return head


def verify_all(vault: Vault, places: Iterable[Place]) -> None:
    """Raise at the first vector that is missing or damaged."""
    with ThreadPoolExecutor(_READERS) as pool:
        for _ in pool.map(vault.verify, places):
            pass
