"""Client vectors on disk, so that clients times parameters may exceed memory."""

import logging
import threading
from collections.abc import Mapping
from typing import Final, final

import numpy as np

from fedecado.common.errors import StoreError
from fedecado.common.layout import Vector
from fedecado.server.store.vault import Place, Vault

log = logging.getLogger(__name__)

RESIDENT_BYTES: Final = 64 << 20
"""So much of short vectors stays in memory, where making and unmaking their files would cost most."""


@final
class FileVectors:
    """Each client's vector in a file of its own, mapped when it is asked for.

    A new value is a new file: the one that a checkpoint refers to stays until the next checkpoint no
    longer does. Nothing is flushed here; `take_changes` says what a checkpoint has to make durable.
    Some vectors are in memory instead: short ones within a limit, and on a full disk those that found no
    room. They follow from the journal, so nothing is lost with them.
    """

    def __init__(
        self, vault: Vault, places: Mapping[str, Place] | None = None, resident_bytes: int = RESIDENT_BYTES
    ) -> None:
        self._vault, self._room = vault, resident_bytes
        self._places: dict[str, Place] = {}
        self._resident: dict[str, Vector] = {}
        self._changed: set[str] = set()
        self._lock = threading.Lock()
        for client, place in (places or {}).items():
            if place.inline is None:
                self._places[client] = place
            else:  # it lives in the database; out of it, it is like the others
                self._replace(client, self._kept(self._vault.map(place)))

    def clients(self) -> list[str]:
        """Those who have a vector."""
        return sorted({*self._places, *self._resident})

    def get(self, client: str) -> Vector | None:
        resident = self._resident.get(client)
        if resident is not None:
            return resident
        place = self._places.get(client)
        return None if place is None else self._vault.map(place)

    def stamp(self, client: str) -> object:
        resident = self._resident.get(client)
        return self._places.get(client) if resident is None else resident

    def checksum(self, client: str) -> int | None:
        """CRC-32 of a client's vector."""
        resident = self._resident.get(client)
        if resident is not None:
            return self._vault.checksum(resident)
        place = self._places.get(client)
        return None if place is None else place.crc

    def put(self, client: str, vector: Vector) -> None:
        kept = self._kept(vector)  # not under the lock: others need not wait for the disk
        with self._lock:
            self._replace(client, kept)
            self._changed.add(client)

    def drop(self, client: str) -> None:
        with self._lock:
            if client in self._places or client in self._resident:
                self._replace(client, None)
                self._changed.add(client)

    def take_changes(self) -> dict[str, Place | None]:
        """What is new since the last call, none for dropped clients; long ones' files now stay."""
        with self._lock:
            changes = {client: self._lasting(client) for client in sorted(self._changed)}
            self._changed.clear()
            return changes

    def _lasting(self, client: str) -> Place | None:
        """Where a checkpoint finds it: in the database if it is short, else in its file."""
        vector = self._resident.get(client)
        if vector is not None and not self._vault.is_short(vector.nbytes):
            self._replace(client, self._vault.put("client", vector))
        place = self._places.get(client)
        if place is not None and not self._vault.is_short(place.length):
            return place
        held = self.get(client)
        return None if held is None else self._vault.inlined(held)

    def _kept(self, vector: Vector) -> Place | Vector:
        """A new file, or a copy in memory."""
        if not self._vault.is_short(vector.nbytes) or vector.nbytes > self._room:
            try:
                return self._vault.put("client", vector)
            except StoreError as error:
                log.error("%s; it stays in memory until then", error)
        copy = np.array(vector)
        copy.flags.writeable = False
        return copy

    def _replace(self, client: str, kept: Place | Vector | None) -> None:
        before, old = self._resident.pop(client, None), self._places.pop(client, None)
        self._room += 0 if before is None else before.nbytes
        if isinstance(kept, Place):
            self._places[client] = kept
        elif kept is not None:
            self._resident[client] = kept
            self._room -= kept.nbytes
        # A file that no checkpoint refers to is nobody's once it is replaced.
        if old is not None and (client in self._changed or self._vault.is_short(old.length)):
            self._vault.remove([str(old.file)])
