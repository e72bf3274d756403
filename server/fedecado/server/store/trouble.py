"""What the system or SQLite reports, turned into one clear error."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from fedecado.common.errors import StoreError

_REMEDIES = {
    errno.ENOSPC: "the disk is full; free some space, nothing that was acknowledged is lost",
    errno.EDQUOT: "the disk quota is used up; raise it, nothing that was acknowledged is lost",
    errno.EROFS: "the file system is read-only; mount it for writing or choose another folder",
    errno.EACCES: "this user may not do that; change the folder's owner or choose another folder",
    errno.ENOENT: "there is no such file or folder",
}

_DAMAGED = "file is not a database", "malformed", "disk I/O error"


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Whatever the disk answers inside becomes a `StoreError` that says what was tried."""
    try:
        yield
    except OSError as error:
        known = _REMEDIES.get(error.errno or 0)
        raise StoreError(f"cannot {doing}: {known or error}") from error
    except sqlite3.Error as error:
        raise StoreError(f"cannot {doing}: {error}{_advice(str(error))}") from error


def _advice(message: str) -> str:
    if "full" in message:
        return "; free some space, nothing that was acknowledged is lost"
    if "readonly" in message or "unable to open" in message:
        return "; the folder must exist and be writable"
    if any(sign in message for sign in _DAMAGED):
        return "; the database is damaged, restore the run's folder from a backup or an export"
    return ""
