"""Client vectors of a folder that is only read; changed ones go elsewhere."""

from collections.abc import Mapping
from typing import final

from fedecado.common.layout import Vector
from fedecado.server.store.vault import Place, Vault
from fedecado.server.store.vectors import FileVectors


@final
class Overlay:
    """Reads from `places` of a vault what has not been changed since."""

    def __init__(self, vault: Vault, places: Mapping[str, Place], changed: FileVectors) -> None:
        self._vault, self._changed = vault, changed
        self._places = dict(places)

    def clients(self) -> list[str]:
        """Those who have a vector."""
        return sorted({*self._places, *self._changed.clients()})

    def get(self, client: str) -> Vector | None:
        place = self._places.get(client)
        return self._changed.get(client) if place is None else self._vault.map(place)

    def put(self, client: str, vector: Vector) -> None:
        self._places.pop(client, None)
        self._changed.put(client, vector)

    def drop(self, client: str) -> None:
        self._places.pop(client, None)
        self._changed.drop(client)

    def stamp(self, client: str) -> object:
        return self._places.get(client) or self._changed.stamp(client)

    def checksum(self, client: str) -> int | None:
        """CRC-32 of a client's vector."""
        place = self._places.get(client)
        return self._changed.checksum(client) if place is None else place.crc
