"""The run's database: its tables, and how an older one becomes a current one.

`PRAGMA user_version` counts the migrations that a database has been through; an empty one has been
through none.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from fedecado.common.errors import StoreError
from fedecado.common.private_files import reserve_private
from fedecado.server.store.faults import point
from fedecado.server.store.trouble import explained

DATABASE: Final = "store.sqlite"
VECTORS: Final = "vectors"
APPLICATION_ID: Final = 0xFEDECAD0 - (1 << 32)
"""Tells `file` and us that a database is a run's; SQLite keeps it as a signed number."""

_LOG_BYTES: Final = 16 << 20
"""Size of the write-ahead log from which it is emptied."""

_V1: Final = """
CREATE TABLE vectors (
    id INTEGER PRIMARY KEY,
    dtype TEXT NOT NULL, length INTEGER NOT NULL, crc INTEGER NOT NULL,
    file TEXT, start INTEGER NOT NULL, inline BLOB
);
CREATE INDEX vectors_by_file ON vectors (file);
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY, kind TEXT NOT NULL, payload TEXT NOT NULL, vector INTEGER
);
CREATE TABLE checkpoint (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    sequence INTEGER NOT NULL, at REAL NOT NULL, run_id TEXT NOT NULL, recipe TEXT NOT NULL,
    engine TEXT NOT NULL, scalars TEXT NOT NULL, updates TEXT NOT NULL,
    members TEXT NOT NULL, journal TEXT NOT NULL
);
CREATE TABLE state (
    role TEXT NOT NULL, name TEXT NOT NULL, vector INTEGER NOT NULL, PRIMARY KEY (role, name)
);
CREATE TABLE clients (client TEXT PRIMARY KEY, vector INTEGER NOT NULL);
CREATE TABLE models (version INTEGER PRIMARY KEY, at REAL NOT NULL, vector INTEGER NOT NULL);
"""


_V2: Final = """
CREATE TABLE history (
    sequence INTEGER PRIMARY KEY, kind TEXT NOT NULL, payload TEXT NOT NULL, vector INTEGER
);
CREATE INDEX history_with_vector ON history (vector) WHERE vector IS NOT NULL;
CREATE TABLE origin (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    sequence INTEGER NOT NULL, at REAL NOT NULL, run_id TEXT NOT NULL, recipe TEXT NOT NULL,
    engine TEXT NOT NULL, scalars TEXT NOT NULL, updates TEXT NOT NULL,
    members TEXT NOT NULL, journal TEXT NOT NULL
);
CREATE TABLE origin_state (
    role TEXT NOT NULL, name TEXT NOT NULL, vector INTEGER NOT NULL, PRIMARY KEY (role, name)
);
"""


def _statements(text: str) -> Callable[[sqlite3.Connection], None]:
    def migrate(connection: sqlite3.Connection) -> None:
        for statement in text.split(";\n"):
            connection.execute(statement)

    return migrate


MIGRATIONS: list[Callable[[sqlite3.Connection], None]] = [_statements(_V1), _statements(_V2)]
"""The n-th takes a database from version n to n + 1, inside one transaction."""


def connect(folder: Path) -> sqlite3.Connection:
    """A connection for the one writer; the database is made or brought up to date.

    Every commit is on the disk when it returns (`synchronous = FULL`); the write-ahead log makes that
    one flush.
    """
    path = folder / DATABASE
    with explained(f"open {path}"):
        reserve_private(path)  # what SQLite keeps beside it gets the same mode
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            _check_origin(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            # Debian's SQLite writes zeros over what is deleted, and those to its log, too: a checkpoint that
            # forgets a gigabyte of updates would take four seconds.
            connection.execute("PRAGMA secure_delete = OFF")
            connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
            # Four times SQLite's default: what moves from the log to the database is flushed, too.
            connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_BYTES >> 12}")
            _migrate(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def connect_to_read(folder: Path, *, any_format: bool = False) -> sqlite3.Connection:
    """A connection that changes nothing; unless said otherwise the database must be current."""
    path = folder / DATABASE
    if not path.is_file():
        raise StoreError(f"there is no run in {folder}: it has no {DATABASE}")
    with explained(f"open {path}"):
        # On a read-only disk SQLite cannot keep its index of the log; without a log it needs none.
        logged = path.with_name(DATABASE + "-wal").exists()
        mode = "mode=ro" if logged or os.access(folder, os.W_OK) else "mode=ro&immutable=1"
        uri = f"{path.resolve().as_uri()}?{mode}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        try:
            _check_origin(connection, path)
            found = _version(connection)
            if found < len(MIGRATIONS) and not any_format:
                raise StoreError(
                    f"{path} has format {found}, this version reads {len(MIGRATIONS)}; start the coordinator "
                    "on it once to bring it up to date"
                )
        except BaseException:
            connection.close()
            raise
    return connection


def database_sizes(folder: Path) -> list[int]:
    """Bytes of the database and of the files that SQLite keeps beside it."""
    sizes = []
    for ending in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            sizes.append((folder / f"{DATABASE}{ending}").stat().st_size)
    return sizes


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    found = _version(connection)
    for number in range(found, len(MIGRATIONS)):
        with explained(f"bring {path} from format {number} to {number + 1}"), transaction(connection):
            MIGRATIONS[number](connection)
            point("migration.in-transaction")
            connection.execute(f"PRAGMA user_version = {number + 1}")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _check_origin(connection: sqlite3.Connection, path: Path) -> None:
    found = connection.execute("PRAGMA application_id").fetchone()[0]
    version = _version(connection)
    if found != APPLICATION_ID and (found or version or _has_tables(connection)):
        raise StoreError(f"{path} is a database of something else; choose another folder")
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} has format {version}, this version knows up to {len(MIGRATIONS)}; it was written by a "
            "newer fedecado, use that one"
        )


def _has_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
