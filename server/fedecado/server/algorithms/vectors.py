"""What is kept of every client: one vector each, and how long it is."""

from collections.abc import Collection
from typing import Final, Protocol

from fedecado.common.layout import Vector
from fedecado.server.numerics.finite import require_finite, squared_length

RESPONSE: Final = "response/"
"""Before a client's name: what is remembered of its responses. No worker's id has such a character."""


class ClientVectors(Protocol):
    """One vector per client (flows, control variates, duals); absent ones count as zero."""

    def clients(self) -> Collection[str]:
        """Names that have a vector; those of what is remembered of responses are among them."""

    def get(self, client: str) -> Vector | None:
        """The client's vector, to look at until its next one is made.

        Where it may be written to, the next one takes its memory; whoever keeps it for longer makes it
        read-only.
        """

    def put(self, client: str, vector: Vector) -> None:
        """Replace the client's vector; the caller gives `vector` up and no longer changes it."""

    def drop(self, client: str) -> None:
        """Forget the client's vector, if there is one."""

    def stamp(self, client: str) -> object:
        """Something that is another object once others have put a vector for the client; None without one."""


class MemoryVectors:
    """Client vectors in memory."""

    def __init__(self) -> None:
        self._vectors: dict[str, Vector] = {}

    def clients(self) -> Collection[str]:
        return self._vectors.keys()

    def get(self, client: str) -> Vector | None:
        return self._vectors.get(client)

    def put(self, client: str, vector: Vector) -> None:
        self._vectors[client] = vector

    def drop(self, client: str) -> None:
        self._vectors.pop(client, None)

    def stamp(self, client: str) -> object:
        return self._vectors.get(client)


class Lengths:
    """Squared lengths of clients' vectors, kept from when they were written or first read."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, float]] = {}

    def square(self, vectors: ClientVectors, client: str) -> float:
        """That of a client's vector, 0 if it has none; raises if what is stored was damaged."""
        stamp, square = self._known.get(client, (None, 0.0))
        current = vectors.stamp(client)
        if current is stamp:
            return square
        vector = vectors.get(client)
        if vector is None:
            return 0.0
        square = squared_length(vector)
        require_finite(vector, square, "stored flow")
        self._known[client] = current, square
        return square

    def note(self, vectors: ClientVectors, client: str, square: float) -> None:
        """The client's vector, which was just put, has this squared length."""
        self._known[client] = vectors.stamp(client), square

    def drop(self, client: str) -> None:
        """Forget a client."""
        self._known.pop(client, None)
