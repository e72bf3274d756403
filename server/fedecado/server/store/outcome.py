"""What came in and what a round made of it, as digests that a replay can compare."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedecado.common.layout import Vector
from fedecado.server.federation import Federation, Result
from fedecado.server.store import states
from fedecado.server.store.codec import encode_result, to_json
from fedecado.server.store.replay import Closed


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

    def dump(self) -> dict[str, Any]:
        """Plain values for the journal; reads the whole vector."""
        return {
            "round": self.round,
            "tasks": list(self.tasks),
            "enrolled": self.enrolled,
            "scalars": dict(self.scalars),
            "flows": dict(self.flows),
            "central": digest(self.central),
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


def digest(vector: Vector, beside: str = "") -> str:
    """SHA-256 of the little-endian bytes of a vector, and of a text after it."""
    plain = np.ascontiguousarray(vector, vector.dtype.newbyteorder("<"))
    found = hashlib.sha256(plain.view(np.uint8).data if plain.size else b"")
    found.update(beside.encode())
    return found.hexdigest()
