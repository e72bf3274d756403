"""How often a worker does what, and how long it waits before it connects again."""

import math
import random
from dataclasses import dataclass
from typing import Self, final

from fedecado.common.timeouts import Timeouts
from fedecado.v1.session_pb2 import Intervals


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between progress messages; shortest and longest pause before a new connection."""

    progress: float
    reconnect: float
    reconnect_most: float

    @classmethod
    def of(cls, timeouts: Timeouts) -> Self:
        return cls(1.0, timeouts.reconnect, timeouts.reconnect_most)

    def overridden(self, by: Intervals) -> "Pace":
        """With what the coordinator asks for; zero, and nonsense, leave the own choice."""

        def choose(own: float, asked: float) -> float:
            return asked if 0 < asked < math.inf else own

        first = choose(self.reconnect, by.reconnect_seconds)
        most = choose(self.reconnect_most, by.reconnect_max_seconds)
        return Pace(choose(self.progress, by.progress_seconds), first, max(first, most))


@final
class Backoff:
    """Pauses that double with every failure, jittered so that many workers do not return at once."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._failures = 0
        self._last = 0.0

    def pause(self, pace: Pace, *, stood: float, least: float = 0.0) -> float:
        """Seconds to wait after a connection on which a worker was welcome for `stood` seconds.

        One that outlived the pause before it counts as a success; a shorter one as a failure, or a
        coordinator that drops everybody at once would be asked again without rest.
        """
        if stood > self._last:
            self._failures = 0
        # The exponent is bounded only to keep the power finite.
        usual = min(pace.reconnect_most, pace.reconnect * 2.0 ** min(self._failures, 60))
        self._failures += 1
        self._last = max(usual * self._rng.uniform(0.5, 1.0), least * self._rng.uniform(1.0, 1.5))
        return self._last
