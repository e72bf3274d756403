"""Whether clients go where their flows tell them to.

A client's flow I_i is added to its gradient, so an honest client moves by d_i / T_i = I_i - w_i grad f_i.
The coordinator knows the flows that it sent. Where one changes by dI from a client's one update to its next,
the client's rate d_i / T_i changes along with it, whatever its data are:

    response_i = <change of d_i / T_i, dI> / <dI, dI>,

1 where its loss is flat, less where it is curved, and below 0 for a client that sends the opposite of its
work. Labels that differ from the others' do not show in it, as they do in a comparison of displacements.

Inner products are taken between sketches: signed sums of every `WIDTH`-th coordinate, the signs drawn from a
seed. They are right on average, and off by 1 / sqrt(WIDTH) of the product of the lengths. So what has to be
remembered of a client is short.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from fedecado.common.layout import Vector
from fedecado.server.numerics.circuit import Floats
from fedecado.server.numerics.columns import BLOCK, blocks, over_columns, summed

WIDTH: Final = 256
"""Numbers in a sketch; a divisor of BLOCK, so that blocks begin with the first."""
FORGETTING: Final = 0.9
"""What a client did counts so much less with every new answer."""
TELLING: Final = 0.01
"""Share of what is known that the square of a flow's change must have to tell anything new.

At rest flows hardly change, and rates change by chance: that must neither acquit nor accuse.
"""
_SEED: Final = 0xECAD0


@dataclass(frozen=True, slots=True)
class Response:
    """What is remembered of a client."""

    rate: Floats
    """Sketch of d_i / T_i as it was last sent."""
    flow: Floats
    """Sketch of the flow that this was an answer to."""
    agreement: float = 0.0
    """Sum of <change of d_i / T_i, dI>, older terms less."""
    change: float = 0.0
    """Sum of <dI, dI>, likewise."""

    @property
    def value(self) -> float | None:
        """The response; none before the client's flow has ever changed."""
        return self.agreement / self.change if self.change > 0 else None

    def then(self, rate: Floats, flow: Floats) -> "Response":
        """With the client's next answer."""
        with np.errstate(over="ignore", invalid="ignore"):
            turned = flow - self.flow
            change, agreement = float(turned @ turned), float((rate - self.rate) @ turned)
        telling = change > TELLING * self.change and math.isfinite(change) and math.isfinite(agreement)
        if not telling:
            return Response(rate, flow, self.agreement, self.change)
        return Response(
            rate, flow, FORGETTING * self.agreement + agreement, FORGETTING * self.change + change
        )

    def pack(self) -> Floats:
        """As one vector."""
        return np.concatenate([self.rate, self.flow, [self.agreement, self.change]])

    @classmethod
    def unpack(cls, packed: Vector) -> Self:
        whole = np.asarray(packed, np.float64)
        return cls(whole[:WIDTH], whole[WIDTH:-2], float(whole[-2]), float(whole[-1]))


def distrusted(responses: Mapping[str, Response], bound: float) -> frozenset[str]:
    """Clients that go against their flows, or more than `bound` times as far with them as the median.

    A median above 1, which no convex loss gives, says that the step before changed everyone's curvature. Then
    honest clients scatter around 0 as well, and to be distrusted takes half of that excess.
    """
    known = {client: value for client, r in responses.items() if (value := r.value) is not None}
    middle = float(np.median(list(known.values()))) if known else 0.0
    most = bound * middle if middle > 0 else math.inf
    least = -max(0.0, middle - 1.0) / 2
    return frozenset(client for client, value in known.items() if not least < value <= most)


def sketches(rows: Sequence[Vector | None], size: int) -> Floats:
    """A sketch of each vector; None is zero."""

    def work(stripe: slice) -> Floats:
        found = np.zeros((len(rows), WIDTH))
        for columns in blocks(stripe):
            signs = _signs(columns)
            for i, row in enumerate(rows):
                if row is not None:
                    found[i] += _folded(row[columns] * signs.astype(row.dtype))
        return found

    return summed(over_columns(size, work))


def _folded(values: Vector) -> Floats:
    whole = len(values) // WIDTH * WIDTH
    found = np.zeros(WIDTH)
    if whole:
        found += values[:whole].reshape(-1, WIDTH).sum(axis=0, dtype=np.float64)
    found[: len(values) - whole] += values[whole:]
    return found


def _signs(columns: slice) -> Vector:
    """1 or -1 for each column of a block, the same in every process."""
    bits = np.random.default_rng((_SEED, columns.start // BLOCK)).integers(
        0, 2, columns.stop - columns.start, np.int8
    )
    return np.asarray(2 * bits - 1)
