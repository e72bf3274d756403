"""What a replay needs: where the record of a run begins, and every event since.

The journal is short: a checkpoint makes its rows superfluous. They move here, in their order and with
the digests of what came in and went out, and without notes. The vectors of updates move along only if
they are wanted, for they are what takes space.
"""

import sqlite3
from typing import Final

from fedecado.server.store import records
from fedecado.server.store.codec import NOTE
from fedecado.server.store.retention import Retention

EVENTS: Final = 500_000
"""About 100 MB; a record that is longer begins anew."""


def extend(connection: sqlite3.Connection, head: records.Head, retention: Retention) -> None:
    """Take over the journal up to a checkpoint that has just been written; part of its transaction."""
    connection.execute(
        "INSERT INTO history SELECT sequence, kind, CASE kind WHEN ? THEN '{}' ELSE payload END, vector "
        "FROM events WHERE sequence <= ?",
        (NOTE, head.sequence),
    )
    connection.execute("DELETE FROM events WHERE sequence <= ?", (head.sequence,))
    if not retention.inputs:
        connection.execute("UPDATE history SET vector = NULL WHERE vector IS NOT NULL")
        connection.execute("DELETE FROM origin_state")
    begun = connection.execute("SELECT 1 FROM origin").fetchone() is not None
    if not begun or (retention.inputs and not has_inputs(connection)) or _too_long(connection, retention):
        _begin(connection, retention)


def has_inputs(connection: sqlite3.Connection) -> bool:
    """Whether the record holds the vectors to re-execute it with."""
    return connection.execute("SELECT 1 FROM origin_state").fetchone() is not None


def _begin(connection: sqlite3.Connection, retention: Retention) -> None:
    """Forget the record, and begin another at the checkpoint."""
    connection.execute("DELETE FROM history")
    connection.execute("DELETE FROM origin_state")
    records.write_origin(connection)
    if retention.inputs:
        connection.execute(
            "INSERT INTO origin_state SELECT role, name, vector FROM state "
            "UNION ALL SELECT 'client', client, vector FROM clients"
        )


def _too_long(connection: sqlite3.Connection, retention: Retention) -> bool:
    (events,) = connection.execute("SELECT count(*) FROM history").fetchone()
    (nbytes,) = connection.execute(
        "SELECT coalesce(sum(v.length), 0) FROM history h JOIN vectors v ON v.id = h.vector"
    ).fetchone()
    return bool(events > EVENTS or nbytes > retention.inputs_bytes)
