"""How the simulated clients differ: learning rate, epochs, speed, reliability."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedecado.common.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Profile:
    """One client's own choices and circumstances."""

    rate: float
    epochs: int
    pace: float
    """Virtual seconds per epoch; a slow device has a large one."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """All clients' profiles, and what can go wrong with any of them."""

    profiles: tuple[Profile, ...]
    dropout: float = 0.0
    """Chance that a client goes away during a task; it comes back and starts anew."""
    absence: float = 10.0
    """Mean virtual seconds that it stays away."""
    jitter: float = 0.1
    """Relative spread of a client's duration from task to task."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout is {self.dropout!r}; it must be in [0, 1)")
        if not (self.absence > 0 and self.jitter >= 0):
            raise ConfigError("absence must be positive and jitter 0 or more")

    def duration(self, client: int, task: int) -> float:
        """Virtual seconds that the client needs for the task."""
        profile = self.profiles[client]
        spread = np.exp(self.jitter * self._draw(client, task, 0).standard_normal())
        return float(profile.epochs * profile.pace * spread)

    def outage(self, client: int, task: int) -> tuple[float, float] | None:
        """When in its task (as a fraction) the client goes away and for how long, if it does."""
        draw = self._draw(client, task, 1)
        if draw.random() >= self.dropout:
            return None
        return float(draw.random()), float(draw.exponential(self.absence))

    def _draw(self, client: int, task: int, purpose: int) -> np.random.Generator:
        """Randomness by client and task, so that it does not depend on the order of events."""
        return np.random.default_rng((self.seed, client, task, purpose))


def draw_fleet(
    clients: int,
    rates: Sequence[float],
    epochs: Sequence[int],
    *,
    speed_spread: float = 0.0,
    dropout: float = 0.0,
    seed: int = 0,
) -> Fleet:
    """Rates and epochs uniform between (low, high), paces log-normal with `speed_spread`."""
    (low, high), (least, most) = rates, epochs
    if not 0 < low <= high < math.inf:
        raise ConfigError(f"rates from {low} to {high}; both must be positive, finite and in order")
    if not 1 <= least <= most:
        raise ConfigError(f"epochs from {least} to {most}; both must be 1 or more and in order")
    if not 0 <= speed_spread < math.inf:
        raise ConfigError(f"speed_spread is {speed_spread}; it must be 0 or more, and finite")
    draw = np.random.default_rng((seed, 1))
    profiles = tuple(
        Profile(
            rate=float(draw.uniform(low, high)),
            epochs=int(draw.integers(least, most + 1)),
            pace=float(np.exp(speed_spread * draw.standard_normal())),
        )
        for _ in range(clients)
    )
    return Fleet(profiles, dropout=dropout, seed=seed)
