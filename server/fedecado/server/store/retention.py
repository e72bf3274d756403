"""What stays in a run's folder beyond what it needs to go on."""

from collections.abc import Iterable
from dataclasses import dataclass

from fedecado.common.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Retention:
    """Keep the versions of the last checkpoints, and a sparser row of older ones."""

    last: int = 2
    """So many of the newest checkpoints."""
    every: int = 0
    """Of the older ones, the first in each stretch of so many versions; 0 keeps none."""
    most: int = 20
    """Older ones to keep at most, so that the folder stays bounded."""
    inputs: bool = False
    """Keep the updates of all rounds, so that the run can be re-executed."""
    inputs_bytes: int = 10 << 30
    """With more of them than this, the record begins anew."""

    def __post_init__(self) -> None:
        for name, least in (("last", 1), ("every", 0), ("most", 0), ("inputs_bytes", 1)):
            value = getattr(self, name)
            if value < least:
                raise ConfigError(f"retention {name} is {value!r}; it must be {least} or more")

    def kept(self, versions: Iterable[int]) -> set[int]:
        """Of these versions, the ones to keep."""
        ordered = sorted(versions)
        newest, older = ordered[-self.last :], ordered[: -self.last]
        if not self.every or not self.most:
            return set(newest)
        firsts: dict[int, int] = {}
        for version in older:
            firsts.setdefault(version // self.every, version)
        return {*newest, *list(firsts.values())[-self.most :]}
