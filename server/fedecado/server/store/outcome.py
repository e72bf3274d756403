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
"""Models and updates beyond this have a CRC-32 in the record, others a SHA-256.

That is the checksum that a transfer and a file have anyway. A SHA-256 takes longer than all else that is done
with an update, and would stand beside what it is to vouch for.
"""

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
            "central": digest(self.central, like=like),
        }


def outcome_of(federation: Federation, closed: Closed, clients: Checksums) -> Outcome | None:
    """What a round made, right after its commit; none if it was given up."""
    if closed.report is None:
        return None
    scalars, _ = states.dump(federation.content().state)
    flows = {client: clients.checksum(client) for client, _ in closed.delivered}
    return Outcome(closed.round, closed.tasks, closed.enrolled, scalars, flows, federation.central)


def input_digest(result: Result, *, like: str | None = None, crc: int | None = None) -> str:
    """Of all that a client sent and a round uses: vector, whose CRC-32 may be known, and scalars."""
    return digest(result.state, to_json(encode_result(result)), like=like, crc=crc)


def digest(vector: Vector, beside: str = "", *, like: str | None = None, crc: int | None = None) -> str:
    """Of the little-endian bytes of a vector, and of a text after it.

    Earlier versions took the SHA-256 of long ones, too; `like` one of those it is that again.
    """
    known = like is not None and not like.startswith(_CRC)
    if known or vector.nbytes <= LONG_BYTES:
        found = hashlib.sha256(_plain(vector))
        found.update(beside.encode())
        return found.hexdigest()
    return f"{_CRC}{crc32(beside.encode(), crc32(_plain(vector)) if crc is None else crc):08x}"


def _plain(vector: Vector) -> memoryview:
    plain = np.ascontiguousarray(vector, vector.dtype.newbyteorder("<"))
    return plain.view(np.uint8).data if plain.size else memoryview(b"")
