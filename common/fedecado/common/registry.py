"""What an authority has given out: certificates and enrolment tokens, in `registry.db` beside its key.

SQLite, because the command line and a coordinator that enrols workers write to it at the same time. A
connection lives for one transaction; there is nothing to close, and any thread may call.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fedecado.common.errors import ConfigError
from fedecado.common.private_files import reserve_private

NAME: Final = "registry.db"
_BUSY_SECONDS: Final = 5.0
_VERSION: Final = 1
_SCHEMA: Final = (
    """CREATE TABLE certificates (
        serial TEXT PRIMARY KEY, name TEXT NOT NULL, key BLOB NOT NULL, issued REAL NOT NULL,
        expires REAL NOT NULL, token TEXT, revoked REAL)""",
    "CREATE INDEX certificates_by_name ON certificates (name)",
    """CREATE TABLE tokens (
        id TEXT PRIMARY KEY, digest BLOB NOT NULL, name TEXT NOT NULL, prefix INTEGER NOT NULL,
        uses INTEGER NOT NULL, used INTEGER NOT NULL DEFAULT 0, created REAL NOT NULL,
        expires REAL NOT NULL, revoked REAL)""",
    f"PRAGMA user_version = {_VERSION}",
)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate that was given out."""

    serial: str
    """In hexadecimal."""
    name: str
    key: bytes
    """SHA-256 of its public key."""
    issued: float
    expires: float
    token: str | None = None
    revoked: float | None = None


@contextmanager
def registry(folder: Path) -> Iterator[sqlite3.Connection]:
    """One transaction on the registry of an authority: all of it, or nothing if this raises."""
    path = folder / NAME
    try:
        reserve_private(path)
        with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            _prepare(connection, path)
            yield connection
            connection.execute("COMMIT")
    except (sqlite3.Error, OSError) as error:
        raise ConfigError(f"cannot use {path}: {error}; check its rights and the disk") from error


def add(connection: sqlite3.Connection, issued: Issued) -> None:
    """Note a certificate, and forget those of the same name that have ended."""
    connection.execute(
        "DELETE FROM certificates WHERE name = ? AND expires < ?", (issued.name, issued.issued)
    )
    connection.execute(
        "INSERT OR REPLACE INTO certificates VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            *(issued.serial, issued.name, issued.key, issued.issued),
            *(issued.expires, issued.token, issued.revoked),
        ),
    )


def certificates(connection: sqlite3.Connection) -> list[Issued]:
    """All that are known, by name and age."""
    rows = connection.execute("SELECT * FROM certificates ORDER BY name, issued").fetchall()
    return [Issued(*row) for row in rows]


def revoke(connection: sqlite3.Connection, which: str) -> list[Issued]:
    """Revoke all certificates of a name, or the one with a serial number; those that were concerned."""
    found = [issued for issued in certificates(connection) if which in (issued.name, issued.serial)]
    connection.executemany(
        "UPDATE certificates SET revoked = coalesce(revoked, ?) WHERE serial = ?",
        [(time.time(), issued.serial) for issued in found],
    )
    return found


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0:
        for statement in _SCHEMA:
            connection.execute(statement)
    elif version != _VERSION:
        raise ConfigError(f"{path} has format {version}, this version knows {_VERSION}; use a newer fedecado")
