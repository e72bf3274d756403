"""One process at a time writes to a run's folder."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from fedecado.common.errors import StoreError
from fedecado.server.store.trouble import explained


class RunLock:
    """Held from its making until `close`; the system frees it when the process dies, however that is.

    A shared lock is for those who only read: several may, but not while a coordinator writes.
    """

    def __init__(self, folder: Path, *, shared: bool = False) -> None:
        path = folder / "lock"
        with explained(f"open the lock {path}"):
            flags = os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT
            self._descriptor: int | None = os.open(path, flags | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            self.close()
            who = f"process {holder}" if holder else "another process"
            raise StoreError(
                f"the run folder {folder} is in use by {who}; stop it first, or choose another folder"
            ) from error
        if not shared:
            # For the message above only; a full disk is no reason not to start.
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Free the folder. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
