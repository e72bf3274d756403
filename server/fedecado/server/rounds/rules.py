"""The rules of a run's rounds, validated."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from fedecado.common.errors import ConfigError
from fedecado.common.target import Target

Mode = Literal["rounds", "stream"]


@dataclass(frozen=True, slots=True)
class Rules:
    """When tasks are handed out, when a round closes, when the run ends."""

    mode: Mode = "rounds"
    """`rounds` asks a sample of clients at each round's start; `stream` keeps a number of clients busy."""
    active: int | float = 1.0
    """Clients asked per round (or kept busy): a count, or a fraction of the enrolled ones."""
    min_clients: int = 1
    """Connected clients needed before the first round starts; later ones start with any."""
    min_updates: int = 1
    """No round closes with fewer updates."""
    target_updates: int | None = None
    """Close as soon as so many updates are in; none: all that were asked (stream: half of those busy)."""
    deadline: float | None = None
    """Seconds after which a round closes with what is there."""
    lease: float | None = None
    """Seconds after which a task is no longer waited for."""
    retry: float = 5.0
    """Seconds that a client rests after a failed task before it is asked again in the same round."""
    max_staleness: int = 20
    """Updates that started more versions ago are refused."""
    max_rounds: int | None = 100
    target: Target | None = None
    rest_tolerance: float | None = None
    """End when ‖dx_c/dt‖ (root mean square over the parameters) falls below this."""
    seed: int = 0

    def __post_init__(self) -> None:
        require = _require
        require(self.mode in get_args(Mode), "mode", self.mode, "'rounds' or 'stream'")
        whole = isinstance(self.active, int)
        require(
            not isinstance(self.active, bool) and (self.active >= 1 if whole else 0 < self.active <= 1),
            "active",
            self.active,
            "a count of 1 or more, or a fraction in (0, 1]",
        )
        require(self.min_clients >= 1, "min_clients", self.min_clients, "1 or more")
        require(self.min_updates >= 1, "min_updates", self.min_updates, "1 or more")
        if self.target_updates is not None:
            require(
                self.target_updates >= self.min_updates,
                "target_updates",
                self.target_updates,
                f"at least min_updates ({self.min_updates})",
            )
        for name in ("deadline", "lease", "rest_tolerance"):
            value = getattr(self, name)
            require(value is None or 0 < value < math.inf, name, value, "positive, or none")
        require(0 < self.retry < math.inf, "retry", self.retry, "positive")
        require(self.max_staleness >= 0, "max_staleness", self.max_staleness, "0 or more")
        require(self.max_rounds is None or self.max_rounds >= 1, "max_rounds", self.max_rounds, "1 or more")

    def wanted(self, enrolled: int) -> int:
        """How many clients are asked per round, or kept busy."""
        if isinstance(self.active, int):
            return self.active
        return max(1, round(self.active * enrolled))

    def missing(self, enrolled: int, running: int, arrived: int, *, first: bool) -> int:
        """How many more tasks an open round should hand out; `first` if it has handed out none."""
        if self.mode == "stream":
            return self.wanted(enrolled) - running
        # Later draws only replace what a round cannot close without.
        needed = self.min_updates - running - arrived
        return max(self.wanted(enrolled), needed) if first else needed

    def updates_to_close(self, enrolled: int) -> int | None:
        """How many updates close a round at once; none waits for all that were asked."""
        if self.target_updates is None and self.mode == "stream":
            return max(self.min_updates, self.wanted(enrolled) // 2)
        return self.target_updates

    def complete(self, enrolled: int, running: int, arrived: int) -> bool:
        """Whether a round closes before its deadline."""
        if arrived < self.min_updates:
            return False
        target = self.updates_to_close(enrolled)
        return running == 0 or (target is not None and arrived >= target)


def _require(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise ConfigError(f"round rule {name} is {value!r}; it must be {allowed}")
