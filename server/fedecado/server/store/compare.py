"""What was recorded beside what a replay finds, quantity by quantity."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedecado.common.layout import Vector


@dataclass(frozen=True, slots=True)
class Difference:
    """A quantity that a replay finds otherwise than it was recorded."""

    event: int
    """Its number in the journal."""
    round: int
    client: str
    """Whose quantity it is; empty for the run's own."""
    quantity: str
    recorded: str
    found: str

    def __str__(self) -> str:
        whose = f", client {self.client}" if self.client else ""
        return (
            f"round {self.round}{whose} (event {self.event}): {self.quantity}\n"
            f"  recorded  {self.recorded}\n  found     {self.found}"
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the run something is compared."""

    event: int
    round: int

    def values(self, quantity: str, recorded: Any, found: Any, client: str = "") -> Iterator[Difference]:
        """The difference between two plain values, if there is one; NaN equals itself."""
        if repr(recorded) != repr(found):
            yield Difference(self.event, self.round, client, quantity, _short(recorded), _short(found))

    def parts(self, what: str, recorded: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Difference]:
        """Likewise, name by name."""
        for name in dict.fromkeys([*recorded, *found]):
            yield from self.values(f"{what} {name}".strip(), recorded.get(name), found.get(name))

    def outcomes(self, recorded: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Difference]:
        """Of a round: causes before consequences."""
        for name in ("round", "tasks", "enrolled"):
            yield from self.values(name, recorded.get(name), found[name])
        yield from self.parts("", recorded.get("scalars", {}), found["scalars"])
        flows = recorded.get("flows", {})
        for client, checksum in found["flows"].items():
            yield from self.values("checksum of its vector", flows.get(client), checksum, client)
        yield from self.values("digest of the new model", recorded.get("central"), found["central"])

    def vectors(
        self, what: str, recorded: Mapping[Any, Vector], found: Mapping[Any, Vector]
    ) -> Iterator[Difference]:
        """Of vectors that are both there: in how many values they differ, and by how much."""
        for name in dict.fromkeys([*recorded, *found]):
            one, other = recorded.get(name), found.get(name)
            if one is None or other is None or one.shape != other.shape:
                yield from self.values(f"{what} {name}", _shape(one), _shape(other))
            elif not np.array_equal(one, other):
                apart = np.abs(one - other)
                told = f"{np.count_nonzero(apart)} of {apart.size} values differ, by up to {apart.max():.3g}"
                yield Difference(self.event, self.round, "", f"{what} {name}", "in the checkpoint", told)


def _shape(vector: Vector | None) -> str:
    return "none" if vector is None else f"{vector.size} values"


def _short(value: Any) -> str:
    text = f"{value:08x}" if isinstance(value, int) and value > 1 << 24 else str(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"
