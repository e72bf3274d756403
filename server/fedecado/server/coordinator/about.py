"""What a coordinator says of itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class About:
    """Names for people."""

    name: str
    algorithm: str
    software: str
