"""What stands in the database, read and written row by row."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from fedecado.common.errors import StoreError
from fedecado.server.store.codec import from_json, to_json
from fedecado.server.store.recipe import Recipe
from fedecado.server.store.vault import Place

Row = tuple[str, dict[str, Any], int | None]
"""Kind, payload and the vector's number of a journal row."""

_PLACE: Final = "v.id, v.dtype, v.length, v.crc, v.file, v.start, v.inline"
_NEEDED: Final = (
    "SELECT vector FROM events WHERE vector IS NOT NULL UNION SELECT vector FROM state "
    "UNION SELECT vector FROM clients UNION SELECT vector FROM models"
)
_RECORDED: Final = "SELECT vector FROM history WHERE vector IS NOT NULL UNION SELECT vector FROM origin_state"


@dataclass(frozen=True, slots=True)
class Head:
    """The scalars of the checkpoint."""

    sequence: int
    """The last event that it holds."""
    at: float
    run_id: str
    recipe: Recipe
    engine: dict[str, Any]
    scalars: dict[str, Any]
    updates: dict[int, dict[str, Any]]
    """Scalars of the results that wait for their round to close, by task."""
    members: Any
    journal: Any


def read_head(
    connection: sqlite3.Connection, table: Literal["checkpoint", "origin"] = "checkpoint"
) -> Head | None:
    """The checkpoint, or none in a database whose run never began; or where its record begins."""
    row = connection.execute(
        f"SELECT sequence, at, run_id, recipe, engine, scalars, updates, members, journal FROM {table}"  # noqa: S608 - a constant
    ).fetchone()
    if row is None:
        return None
    sequence, at, run_id, *texts = row
    names = "recipe", "engine", "scalars", "updates", "members", "journal"
    parsed = {name: from_json(text, f"the {table}'s {name}") for name, text in zip(names, texts, strict=True)}
    parsed["recipe"] = Recipe.load(parsed["recipe"])
    parsed["updates"] = {int(task): result for task, result in parsed["updates"].items()}
    return Head(sequence=sequence, at=at, run_id=run_id, **parsed)


def write_head(connection: sqlite3.Connection, head: Head) -> None:
    texts = (head.recipe.dump(), head.engine, head.scalars, head.updates, head.members, head.journal)
    connection.execute(
        "REPLACE INTO checkpoint VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (head.sequence, head.at, head.run_id, *map(to_json, texts)),
    )


def write_origin(connection: sqlite3.Connection) -> None:
    """The record begins at the checkpoint."""
    connection.execute("REPLACE INTO origin SELECT * FROM checkpoint")
    connection.execute("UPDATE origin SET members = 'null', journal = 'null'")


def add_vectors(connection: sqlite3.Connection, places: Iterable[Place]) -> list[int]:
    """Their numbers."""
    numbers = []
    for place in places:
        cursor = connection.execute(
            "INSERT INTO vectors (dtype, length, crc, file, start, inline) VALUES (?, ?, ?, ?, ?, ?)",
            (place.dtype, place.length, place.crc, place.file, place.start, place.inline),
        )
        numbers.append(int(cursor.lastrowid or 0))
    return numbers


def add_events(connection: sqlite3.Connection, first: int, rows: Iterable[Row]) -> None:
    connection.executemany(
        "INSERT INTO events VALUES (?, ?, ?, ?)",
        [(first + i, kind, to_json(payload), vector) for i, (kind, payload, vector) in enumerate(rows)],
    )


def read_events(
    connection: sqlite3.Connection, after: int, table: Literal["events", "history"] = "events"
) -> Iterator[tuple[str, dict[str, Any], Place | None]]:
    """The journal, or the record, behind `after`, in order; raises where a row is missing."""
    found = connection.execute(
        f"SELECT e.sequence, e.kind, e.payload, e.vector, {_PLACE} FROM {table} e "  # noqa: S608 - constants
        "LEFT JOIN vectors v ON v.id = e.vector WHERE e.sequence > ? ORDER BY e.sequence",
        (after,),
    )
    for expected, (sequence, kind, payload, vector, number, *place) in enumerate(found, after + 1):
        if sequence != expected or vector != number:
            raise StoreError(f"row {expected} of the journal is missing or lost its vector; restore a backup")
        yield kind, from_json(payload, f"row {sequence} of the journal"), Place(*place) if number else None


def read_state(
    connection: sqlite3.Connection, role: str, table: Literal["state", "origin_state"] = "state"
) -> dict[str, tuple[int, Place]]:
    """The vectors of the checkpoint, or of the record's begin, in a role, by name, with their numbers."""
    rows = connection.execute(
        f"SELECT s.name, {_PLACE} FROM {table} s JOIN vectors v ON v.id = s.vector "  # noqa: S608 - constants
        "WHERE s.role = ?",
        (role,),
    )
    return {name: (number, Place(*place)) for name, number, *place in rows}


def write_state(connection: sqlite3.Connection, role: str, vectors: Mapping[str, int]) -> None:
    connection.execute("DELETE FROM state WHERE role = ?", (role,))
    connection.executemany(
        "INSERT INTO state VALUES (?, ?, ?)", [(role, name, number) for name, number in vectors.items()]
    )


def read_clients(connection: sqlite3.Connection) -> dict[str, Place]:
    rows = connection.execute(
        f"SELECT c.client, {_PLACE} FROM clients c JOIN vectors v ON v.id = c.vector"  # noqa: S608 - constants
    )
    return {client: Place(*place) for client, _, *place in rows}


def change_clients(connection: sqlite3.Connection, changes: Mapping[str, Place | None]) -> None:
    """New places of some clients' vectors; none removes a client."""
    connection.executemany(
        "DELETE FROM clients WHERE client = ?", [(c,) for c, place in changes.items() if place is None]
    )
    placed = {client: place for client, place in changes.items() if place is not None}
    numbers = add_vectors(connection, placed.values())
    connection.executemany("REPLACE INTO clients VALUES (?, ?)", list(zip(placed, numbers, strict=True)))


def read_models(connection: sqlite3.Connection) -> dict[int, tuple[float, Place]]:
    """The versions kept for people: when they were stored, and where."""
    rows = connection.execute(
        f"SELECT m.version, m.at, {_PLACE} FROM models m JOIN vectors v ON v.id = m.vector "  # noqa: S608 - constants
        "ORDER BY m.version"
    )
    return {version: (at, Place(*place)) for version, at, _, *place in rows}


def all_places(connection: sqlite3.Connection) -> list[Place]:
    """Every vector that something refers to."""
    rows = connection.execute(f"SELECT {_PLACE} FROM vectors v ORDER BY v.id")  # noqa: S608 - constants
    return [Place(*place) for _, *place in rows]


def needed_places(connection: sqlite3.Connection) -> list[Place]:
    """Those that the run needs to go on, or that are kept for people; not what only a replay reads."""
    rows = connection.execute(f"SELECT {_PLACE} FROM vectors v WHERE v.id IN ({_NEEDED}) ORDER BY v.id")  # noqa: S608 - constants
    return [Place(*place) for _, *place in rows]


def lost_vectors(connection: sqlite3.Connection) -> int:
    """How many references lead nowhere."""
    query = f"SELECT count(*) FROM ({_NEEDED} UNION {_RECORDED}) WHERE vector NOT IN (SELECT id FROM vectors)"  # noqa: S608 - constants
    return int(connection.execute(query).fetchone()[0])


def forget_unused(connection: sqlite3.Connection) -> list[str]:
    """Delete vectors that nothing refers to; the files that no other vector shares."""
    gone = f"SELECT id FROM vectors WHERE id NOT IN ({_NEEDED} UNION {_RECORDED})"  # noqa: S608 - constants
    files = connection.execute(
        f"SELECT DISTINCT file FROM vectors WHERE id IN ({gone}) AND file IS NOT NULL"  # noqa: S608 - constants
    ).fetchall()
    connection.execute(f"DELETE FROM vectors WHERE id IN ({gone})")  # noqa: S608 - constants
    kept = "SELECT 1 FROM vectors WHERE file = ?"
    return [file for (file,) in files if connection.execute(kept, (file,)).fetchone() is None]


def stored_versions(connection: sqlite3.Connection) -> dict[int, int]:
    """Numbers of the vectors of the checkpoint's versions."""
    return {int(version): number for version, (number, _) in read_state(connection, "version").items()}


def stored_updates(connection: sqlite3.Connection) -> dict[int, int]:
    """Numbers of the vectors of updates in the checkpoint and in the journal, by task."""
    numbers = {int(task): number for task, (number, _) in read_state(connection, "update").items()}
    rows = connection.execute("SELECT payload, vector FROM events WHERE vector IS NOT NULL")
    # SQLite's own JSON functions refuse the NaN that a loss may be.
    return numbers | {from_json(payload, "an update")["task"]: number for payload, number in rows}


def keep_model(
    connection: sqlite3.Connection,
    version: int,
    at: float,
    vector: int,
    kept: Callable[[Iterable[int]], set[int]],
) -> None:
    """Keep a version for people, and let go of those that are no longer to be kept."""
    connection.execute("REPLACE INTO models VALUES (?, ?, ?)", (version, at, vector))
    versions = [version for (version,) in connection.execute("SELECT version FROM models")]
    gone = set(versions) - kept(versions)
    connection.executemany("DELETE FROM models WHERE version = ?", [(version,) for version in gone])
