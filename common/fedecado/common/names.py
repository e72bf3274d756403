"""Names that both the configuration and the code go by."""

from typing import Literal

AlgorithmName = Literal[
    "fedecado", "fedavg", "fedprox", "fednova", "scaffold", "feddyn", "fedbuff", "fedadam", "fedexp"
]
