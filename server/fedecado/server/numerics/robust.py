"""What one client's displacement may do to a round, whatever it says.

Displacements are judged on the common timescale, as they act on the centre: `reach_i d_i`, where FedECADO's
reach is the fraction min(T / T_i, rho) that lays a window on the round's. Two rules, each off by default:

* A norm bound. Lengths beyond `norm_bound` times the round's median are shortened to that.
* Trimming. In every coordinate the k lowest and the k highest of the a values are drawn in to the nearest
  one that is kept, k = ceil(trim a). Whatever k clients send, the result lies between values of the others.

Drawing in, not leaving out: a client that is left out of some coordinates has no trajectory there, and so
no flow. Both rules leave zero where it is: where the others have come to rest, so does everyone.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from fedecado.common.errors import ConfigError
from fedecado.common.layout import Vector
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.circuit import Floats

Beyond = Literal["clip", "drop", "accept"]

_NETWORK = 2000
"""Comparisons up to which a selection by whole rows beats sorting column by column."""


@dataclass(frozen=True, slots=True)
class Robust:
    """Knobs against bad clients."""

    norm_bound: float | None = None
    """Longest displacement that is taken as it is, in medians of the round."""
    beyond: Beyond = "clip"
    """Longer ones are shortened; or refused on arrival, too, by recent rounds' median; or only counted."""
    trim: float = 0.0
    """Share of a round's clients that are drawn in at either end, in every coordinate."""

    def __post_init__(self) -> None:
        bound = self.norm_bound
        if bound is not None and not 1 <= bound < math.inf:
            raise ConfigError(f"norm_bound is {bound!r}; it must be 1 or more and finite, or none")
        if self.beyond not in get_args(Beyond):
            raise ConfigError(f"beyond is {self.beyond!r}; it must be one of {', '.join(get_args(Beyond))}")
        if not 0 <= self.trim < 0.5:
            raise ConfigError(f"trim is {self.trim!r}; it must be at least 0 and below 0.5")

    @property
    def active(self) -> bool:
        """Whether it does anything."""
        return self.norm_bound is not None or self.trim > 0

    def trimmed(self, clients: int) -> int:
        """k: how many values are drawn in at either end."""
        # Products such as 0.1 * 30 lie a hair above the whole number that is meant.
        return min(math.ceil(self.trim * clients - 1e-9), (clients - 1) // 2)


@dataclass(frozen=True, slots=True)
class Judged:
    """What a round's displacements were like."""

    median: float
    """Root mean square over the parameters of the displacement in the middle."""
    beyond: int
    """How many were longer than the bound."""


def guard(basis: Basis, reach: Floats, robust: Robust) -> Judged:
    """Apply the rules to the displacements of a round, in place.

    Trimming comes first: a long vector that was shortened before would hide among the others' values.
    """
    sent = _lengths(basis, reach)
    if k := robust.trimmed(len(sent)):
        stretch = reach.astype(basis.dtype)[:, None]
        basis.rewrite(lambda block: draw_in(block, stretch, k))
    median, bound = float(np.median(sent)), robust.norm_bound
    if bound is None:
        return Judged(median / math.sqrt(basis.size), 0)
    if robust.beyond != "accept":
        lengths = _lengths(basis, reach)
        limit = bound * float(np.median(lengths))
        over = lengths > limit
        basis.scale(np.where(over, limit / np.where(over, lengths, 1.0), 1.0))
    return Judged(median / math.sqrt(basis.size), int((sent > bound * median).sum()))


def _lengths(basis: Basis, reach: Floats) -> Floats:
    return reach * np.sqrt(basis.squares())


def draw_in(rows: Vector, stretch: Vector, k: int) -> None:
    """Clamp stretched rows, in place, to the k-th lowest and k-th highest value of each column."""
    stretched = rows * stretch
    low, high = _edges(stretched, k)
    # Only what lies outside is written, so that all else keeps its last bit.
    np.copyto(rows, low / stretch, where=stretched < low)
    np.copyto(rows, high / stretch, where=stretched > high)


def _edges(values: Vector, k: int) -> tuple[Vector, Vector]:
    """In each column, the value with k others at or below it, and the one with k at or above."""
    a = len(values)
    if 2 * a * (k + 1) > _NETWORK:
        ordered = np.partition(np.ascontiguousarray(values.T), (k, a - 1 - k), axis=1)
        return ordered[:, k], ordered[:, a - 1 - k]
    rows: list[Vector] = list(values.copy())
    spare: Vector = np.empty_like(values[0])

    def order(at: int, spare: Vector) -> Vector:
        """Put the smaller of two neighbours first; what was the first one's memory is free then."""
        low, high = rows[at : at + 2]
        rows[at] = spare
        np.minimum(low, high, out=spare)
        np.maximum(low, high, out=high)
        return low

    for least in range(k + 1):
        for at in range(a - 2, least - 1, -1):
            spare = order(at, spare)
    for most in range(a - 1, max(a - 2 - k, k), -1):
        for at in range(k + 1, most):
            spare = order(at, spare)
    return rows[k], rows[a - 1 - k]
