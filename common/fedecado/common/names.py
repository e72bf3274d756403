"""Names that both the configuration and the code go by."""

from typing import Final, Literal

AlgorithmName = Literal[
    "fedecado", "fedavg", "fedprox", "fednova", "scaffold", "feddyn", "fedbuff", "fedadam", "fedexp"
]

ADMIN: Final = "admin"


def is_admin(name: str) -> bool:
    """Whether a certificate of this name is an operator's."""
    return name == ADMIN or name.startswith(f"{ADMIN}-")
