"""What came in and what a round made of it, as digests that a replay can compare."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from fedecado.common.checksum import crc32
from fedecado.common.layout import Vector
from fedecado.server.federation import Federation, Result
from fedecado.server.store import states
from fedecado.server.store.codec import encode_result, to_json
from fedecado.server.store.replay import Closed

LONG_BYTES: Final = 1 << 20
"""Models beyond this have a CRC-32 in the record of a round."""

_CRC: Final = "crc32:"


class Checksums(Protocol):
    """Client vectors that know their checksums."""

    def checksum(self, client: str) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """A round that was committed, and the state after it."""

    round: int
    tasks: tuple[int, ...]
    enrolled: int
    scalars: Mapping[str, Any]
    flows: Mapping[str, int | None]
    """Checksums of the vectors of the clients that took part."""
    central: Vector

    def dump(self, like: str | None = None) -> dict[str, Any]:
        """Plain values for the journal; reads the whole vector. `like` is a digest to compare with."""
        return {
            "round": self.round,
            "tasks": list(self.tasks),
            "enrolled": self.enrolled,
            "scalars": dict(self.scalars),
            "flows": dict(self.flows),
            "central": _model_digest(self.central, like),
        }


def outcome_of(federation: Federation, closed: Closed, clients: Checksums) -> Outcome | None:
    """What a round made, right after its commit; none if it was given up."""
    if closed.report is None:
        return None
    scalars, _ = states.dump(federation.content().state)
    flows = {client: clients.checksum(client) for client, _ in closed.delivered}
    return Outcome(closed.round, closed.tasks, closed.enrolled, scalars, flows, federation.central)


def input_digest(result: Result) -> str:
    """Of all that a client sent and a round uses: vector and scalars."""
    return digest(result.state, to_json(encode_result(result)))


def _model_digest(vector: Vector, like: str | None) -> str:
    """A long model's is its CRC-32: tasks wait for it, and it follows from updates, which have their SHA-256.

    Earlier versions took the SHA-256 of all models; `like` one of those it is that again.
    """
    known = like is not None and not like.startswith(_CRC)
    if known or vector.nbytes <= LONG_BYTES:
        return digest(vector)
    return f"{_CRC}{crc32(_plain(vector)):08x}"


def digest(vector: Vector, beside: str = "") -> str:
    """SHA-256 of the little-endian bytes of a vector, and of a text after it."""
    found = hashlib.sha256(_plain(vector))
    found.update(beside.encode())
    return found.hexdigest()


def _plain(vector: Vector) -> memoryview:
    plain = np.ascontiguousarray(vector, vector.dtype.newbyteorder("<"))
    return plain.view(np.uint8).data if plain.size else memoryview(b"")
