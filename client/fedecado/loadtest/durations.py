"""How long a simulated worker trains: a distribution, given as text."""

import math
import random
from dataclasses import dataclass
from typing import Final, Self

from fedecado.common.errors import ConfigError
from fedecado.common.sections.load import TRAINING_TIMES

_PARTS: Final = {"constant": 1, "uniform": 2, "exponential": 1, "lognormal": 2}


@dataclass(frozen=True, slots=True)
class Durations:
    """`uniform:1,10`, `exponential:5`, `lognormal:5,0.5`, or plain seconds."""

    kind: str
    first: float
    second: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Self:
        kind, colon, rest = text.strip().partition(":")
        if not colon:
            kind, rest = "constant", kind
        try:
            numbers = [float(part) for part in rest.split(",")]
            fits = len(numbers) == _PARTS.get(kind) and all(0 <= n < math.inf for n in numbers)
            if not fits or (kind == "uniform" and numbers[0] > numbers[1]):
                raise ValueError
        except ValueError:
            raise ConfigError(f"{text!r} is no training time; write {TRAINING_TIMES}") from None
        return cls(kind, *numbers)

    def draw(self, rng: random.Random) -> float:
        """Seconds of one training."""
        match self.kind:
            case "uniform":
                return rng.uniform(self.first, self.second)
            case "exponential":
                return rng.expovariate(1.0) * self.first
            case "lognormal":
                return self.first * math.exp(self.second * rng.gauss(0.0, 1.0))
        return self.first
