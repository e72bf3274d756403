"""A metric to reach: when a run has learnt enough."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from fedecado.common.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Target:
    """`accuracy>=0.9` or `loss<=0.1`."""

    metric: str
    value: float
    rising: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `NAME>=NUMBER` or `NAME<=NUMBER`."""
        found = re.fullmatch(r"\s*([A-Za-z_][\w./-]*)\s*(>=|<=)\s*([-+.\deE]+)\s*", text)
        try:
            if found is None or not math.isfinite(value := float(found[3])):
                raise ValueError
        except ValueError:
            raise ConfigError(
                f"target {text!r} must be NAME>=NUMBER or NAME<=NUMBER, as in accuracy>=0.9"
            ) from None
        return cls(found[1], value, found[2] == ">=")

    def reached(self, metrics: Mapping[str, float]) -> bool:
        """Whether these metrics are good enough."""
        value = metrics.get(self.metric)
        if value is None:
            return False
        return value >= self.value if self.rising else value <= self.value
