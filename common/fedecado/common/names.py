"""Names that both the configuration and the code go by."""

from typing import Final, Literal, get_args

AlgorithmName = Literal[
    "fedecado", "fedavg", "fedprox", "fednova", "scaffold", "feddyn", "fedbuff", "fedadam", "fedexp"
]

Compact = Literal["float16", "bfloat16", "int8"]
Format = Literal["full", "float16", "bfloat16", "int8"]
COMPACT: Final[tuple[Compact, ...]] = get_args(Compact)
"""Number formats of updates on the wire; see `formats`."""

ADMIN: Final = "admin"


def is_admin(name: str) -> bool:
    """Whether a certificate of this name is an operator's."""
    return name == ADMIN or name.startswith(f"{ADMIN}-")
