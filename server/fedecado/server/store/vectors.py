"""Client vectors on disk, so that clients times parameters may exceed memory."""

import logging
import threading
from collections.abc import Mapping
from typing import final

import numpy as np

from fedecado.common.errors import StoreError
from fedecado.common.layout import Vector
from fedecado.server.store.vault import Place, Vault

log = logging.getLogger(__name__)


@final
class FileVectors:
    """Each client's vector in a file of its own, mapped when it is asked for.

    A new value is a new file: the one that a checkpoint refers to stays until the next checkpoint no
    longer does. Nothing is flushed here; `take_changes` says what a checkpoint has to make durable. On a
    full disk a vector waits in memory for that: it follows from the journal, so nothing is lost meanwhile.
    """

    def __init__(self, vault: Vault, places: Mapping[str, Place] | None = None) -> None:
        self._vault = vault
        self._places: dict[str, Place] = {}
        self._waiting: dict[str, Vector] = {}
        self._changed: set[str] = set()
        self._lock = threading.Lock()
        for client, place in (places or {}).items():
            # Short ones live in the database; out of it they are files like the others.
            inline = place.inline is not None
            self._places[client] = vault.put("client", vault.map(place)) if inline else place

    def clients(self) -> list[str]:
        """Those who have a vector."""
        return sorted({*self._places, *self._waiting})

    def get(self, client: str) -> Vector | None:
        if (waiting := self._waiting.get(client)) is not None:
            return waiting
        place = self._places.get(client)
        return None if place is None else self._vault.map(place)

    def checksum(self, client: str) -> int | None:
        """CRC-32 of a client's vector."""
        if (waiting := self._waiting.get(client)) is not None:
            return self._vault.inlined(waiting).crc
        place = self._places.get(client)
        return None if place is None else place.crc

    def put(self, client: str, vector: Vector) -> None:
        place = None
        try:
            place = self._vault.put("client", vector)
        except StoreError as error:
            log.error("%s; it stays in memory until then", error)
        with self._lock:
            self._replace(client, place)
            if place is None:
                self._waiting[client] = np.array(vector)

    def drop(self, client: str) -> None:
        with self._lock:
            if client in self._places or client in self._waiting:
                self._replace(client, None)

    def take_changes(self) -> dict[str, Place | None]:
        """What is new since the last call, none for dropped clients; long ones' files now stay."""
        with self._lock:
            for client in list(self._waiting):
                self._places[client] = self._vault.put("client", self._waiting[client])
                del self._waiting[client]
            changes = {client: self._lasting(self._places.get(client)) for client in sorted(self._changed)}
            self._changed.clear()
            return changes

    def _lasting(self, place: Place | None) -> Place | None:
        if place is None or not self._vault.is_short(place.length):
            return place
        return self._vault.inlined(self._vault.map(place))

    def _replace(self, client: str, place: Place | None) -> None:
        old = self._places.pop(client, None)
        self._waiting.pop(client, None)
        if place is not None:
            self._places[client] = place
        # A file that no checkpoint refers to is nobody's once it is replaced.
        if old is not None and (client in self._changed or self._vault.is_short(old.length)):
            self._vault.remove([str(old.file)])
        self._changed.add(client)
