"""Client vectors on disk, so that clients times parameters may exceed memory."""

import logging
import threading
from collections.abc import Mapping
from typing import Final, NamedTuple, final

import numpy as np

from fedecado.common.errors import StoreError
from fedecado.common.layout import Vector
from fedecado.server.store.vault import Draft, Place, Vault

log = logging.getLogger(__name__)

RESIDENT_BYTES: Final = 256 << 20
"""So much of them stays in memory: a file for every new value costs more than the round that makes it."""


class _Resident(NamedTuple):
    vector: Vector
    crc: int


@final
class FileVectors:
    """Each client's vector in memory, or beyond a limit in a file of its own, mapped when it is asked for.

    What is in memory goes to a file when a checkpoint needs it there. A new value is a new file: the one that
    a checkpoint refers to stays until the next checkpoint no longer does. Nothing is flushed here;
    `take_changes` says what a checkpoint has to make durable. On a full disk vectors stay in memory beyond
    the limit. Between checkpoints they follow from the journal, so nothing is lost with them.
    """

    def __init__(
        self, vault: Vault, places: Mapping[str, Place] | None = None, resident_bytes: int = RESIDENT_BYTES
    ) -> None:
        self._vault, self._room = vault, resident_bytes
        self._places: dict[str, Place] = {}
        """Files; those of clients that are in memory as well are a checkpoint's."""
        self._resident: dict[str, _Resident] = {}
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
            return resident.vector
        place = self._places.get(client)
        return None if place is None else self._vault.map(place)

    def stamp(self, client: str) -> object:
        return self._resident.get(client) or self._places.get(client)

    def checksum(self, client: str) -> int | None:
        """CRC-32 of a client's vector."""
        there = self._resident.get(client) or self._places.get(client)
        return None if there is None else there.crc

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

    def take_changes(self) -> dict[str, Draft | Place | None]:
        """What is new since the last call, none for dropped clients; files of long ones now stay."""
        with self._lock:
            changes = {client: self._lasting(client) for client in sorted(self._changed)}
            self._changed.clear()
            return changes

    def _lasting(self, client: str) -> Draft | Place | None:
        """Where a checkpoint finds it: in the database if it is short, else in its file."""
        resident, place = self._resident.get(client), self._places.get(client)
        if resident is None:
            if place is None or not self._vault.is_short(place.length):
                return place
            return self._vault.inlined(self._vault.map(place))
        if self._vault.is_short(resident.vector.nbytes):
            return self._vault.inlined(resident.vector)
        draft = self._vault.draft("client", *resident)
        self._places[client] = draft.place
        return draft

    def _kept(self, vector: Vector) -> Place | _Resident:
        """In memory if there is room, else a new file."""
        if vector.nbytes > self._room:
            try:
                return self._vault.put("client", vector)
            except StoreError as error:
                log.error("%s; it stays in memory until then", error)
        # What is read-only is somebody else's, or in a file.
        own = vector if vector.flags.writeable else np.array(vector)
        return _Resident(own, self._vault.checksum(own))

    def _replace(self, client: str, kept: Place | _Resident | None) -> None:
        before, old = self._resident.pop(client, None), self._places.pop(client, None)
        self._room += 0 if before is None else before.vector.nbytes
        if isinstance(kept, Place):
            self._places[client] = kept
        elif kept is not None:
            self._resident[client] = kept
            self._room -= kept.vector.nbytes
        # A file that no checkpoint refers to is nobody's once it is replaced.
        if old is not None and (client in self._changed or self._vault.is_short(old.length)):
            self._vault.remove([str(old.file)])
