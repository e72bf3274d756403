"""What one client's update may do to a round, whatever it says.

Updates are judged by the clients' pulls on the common timescale, `scale_i d_i - drift_i`: for FedECADO
d_i / T_i - I_i, the displacement per simulated time less what the client's own flow made of it, which for
an honest client is -w_i grad f_i. Three rules, each off by default:

* A norm bound. Pulls longer than `norm_bound` times the round's median are shortened to that.
* Trimming. In every coordinate the k lowest and the k highest of the a values are drawn in to the nearest
  one that is kept, k = ceil(trim a). Whatever k clients send, the result lies between values of the others.
* Belief. A client that does not go where its flow tells it (`response`) gets the mean pull of the others.

Drawing in, not leaving out: a client that is left out of some coordinates has no trajectory there, and so
no flow. Pulls, not displacements: flows integrate, so a client whose displacement is always a little off
would wind its flow up for ever; by its pull it is taken for one with another, bounded, gradient.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from fedecado.common.errors import ConfigError
from fedecado.common.layout import Vector
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.circuit import Floats
from fedecado.server.numerics.columns import blocks, over_columns, summed

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
    response_bound: float | None = None
    """Clients that go against their flows, or more than so many medians with them, are not believed."""

    def __post_init__(self) -> None:
        bound = self.norm_bound
        if bound is not None and not 1 <= bound < math.inf:
            raise ConfigError(f"norm_bound is {bound!r}; it must be 1 or more and finite, or none")
        response = self.response_bound
        if response is not None and not 1 <= response < math.inf:
            raise ConfigError(f"response_bound is {response!r}; it must be 1 or more and finite, or none")
        if self.beyond not in get_args(Beyond):
            raise ConfigError(f"beyond is {self.beyond!r}; it must be one of {', '.join(get_args(Beyond))}")
        if not 0 <= self.trim < 0.5:
            raise ConfigError(f"trim is {self.trim!r}; it must be at least 0 and below 0.5")

    @property
    def active(self) -> bool:
        """Whether it does anything."""
        return self.norm_bound is not None or self.trim > 0 or self.response_bound is not None

    def trimmed(self, clients: int) -> int:
        """k: how many values are drawn in at either end."""
        # Products such as 0.1 * 30 lie a hair above the whole number that is meant.
        return min(math.ceil(self.trim * clients - 1e-9), (clients - 1) // 2)


@dataclass(frozen=True, slots=True)
class Pulls:
    """What a round's displacements say of the clients' own data: `scale_i d_i - drift_i`."""

    scale: Floats
    drifts: Sequence[Vector | None]
    """What the centre itself made each client move by; None is nothing."""

    def of(self, moves: Vector, columns: slice) -> Vector:
        """The pulls behind a block of displacements, as a new array."""
        pulls: Vector = moves * self.scale.astype(moves.dtype)[:, None]
        for i, drift in enumerate(self.drifts):
            if drift is not None:
                pulls[i] -= drift[columns]
        return pulls

    def put(self, moves: Vector, pulls: Vector, columns: slice) -> None:
        """Write the displacements that these pulls would have made; gives `pulls` up."""
        for i, drift in enumerate(self.drifts):
            if drift is not None:
                pulls[i] += drift[columns]
        np.divide(pulls, self.scale.astype(moves.dtype)[:, None], out=moves)

    def lengths(self, basis: Basis) -> Floats:
        """Of every client's pull."""

        def work(stripe: slice) -> Floats:
            squares = np.zeros(len(self.scale))
            for columns in blocks(stripe):
                pulls = self.of(basis.moves(columns), columns)
                squares += np.einsum("ij,ij->i", pulls, pulls)
            return squares

        return np.asarray(np.sqrt(summed(over_columns(basis.size, work))))


@dataclass(frozen=True, slots=True)
class Judged:
    """What a round's updates were like."""

    median: float
    """Root mean square over the parameters of the displacement in the middle."""
    beyond: int
    """How many pulls were longer than the bound."""


def guard(basis: Basis, pulls: Pulls, robust: Robust, disbelieved: Collection[int] = ()) -> Judged:
    """Apply the rules to the displacements of a round, in place; `disbelieved` are places among them.

    Trimming comes first: a long vector that was shortened before would hide among the others' values. Belief
    comes last: the mean that a client gets instead is one of pulls that are within the other rules.
    """
    median = float(np.median(np.sqrt(np.asarray(basis.squares()) / basis.size)))
    bound, over = robust.norm_bound, 0
    if bound is not None:
        sent = pulls.lengths(basis)
        over = int((sent > bound * np.median(sent)).sum())
    if k := robust.trimmed(len(basis.move_slots)):
        basis.rewrite(lambda moves, columns: _trim(moves, pulls, k, columns))
    if bound is not None and robust.beyond != "accept":
        lengths = pulls.lengths(basis)
        limit = bound * float(np.median(lengths))
        long = lengths > limit
        if long.any():
            factors = np.where(long, limit / np.where(long, lengths, 1.0), 1.0)
            basis.rewrite(lambda moves, columns: _shorten(moves, pulls, factors, columns))
    if disbelieved:
        basis.rewrite(lambda moves, columns: _replace(moves, pulls, disbelieved, columns))
    return Judged(median, over)


def _trim(moves: Vector, pulls: Pulls, k: int, columns: slice) -> None:
    values = pulls.of(moves, columns)
    outside = draw_in(values, k)
    drawn = np.empty_like(moves)
    pulls.put(drawn, values, columns)
    # Only what lay outside is written, so that all else keeps its last bit.
    np.copyto(moves, drawn, where=outside)


def _shorten(moves: Vector, pulls: Pulls, factors: Floats, columns: slice) -> None:
    values = pulls.of(moves, columns)
    values *= factors.astype(moves.dtype)[:, None]
    drawn = np.empty_like(moves)
    pulls.put(drawn, values, columns)
    np.copyto(moves, drawn, where=(factors != 1.0)[:, None])


def _replace(moves: Vector, pulls: Pulls, places: Collection[int], columns: slice) -> None:
    """Give these clients the mean pull of the others, or none at all if there are no others."""
    values = pulls.of(moves, columns)
    kept = [i for i in range(len(values)) if i not in places]
    values[list(places)] = values[kept].mean(axis=0) if kept else 0.0
    drawn = np.empty_like(moves)
    pulls.put(drawn, values, columns)
    moves[list(places)] = drawn[list(places)]


def draw_in(rows: Vector, k: int) -> npt.NDArray[np.bool_]:
    """Clamp each column, in place, to its k-th lowest and k-th highest value; says what was outside."""
    low, high = _edges(rows, k)
    outside = (rows < low) | (rows > high)
    np.clip(rows, low, high, out=rows)
    return np.asarray(outside)


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
