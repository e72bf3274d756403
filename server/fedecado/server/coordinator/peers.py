"""Who is at the other end of a connection, as its certificate says."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """A certificate that TLS has verified."""

    name: str
    serial: int
    ends: float
    """When it stops being valid, in seconds since the epoch."""
