"""Any algorithm behind rules against bad clients.

The rules see the round's displacements just before the algorithm does. What it then computes, flows and
control variates included, follows from the guarded ones alone.
"""

import math
from dataclasses import replace
from typing import Generic, TypeVar, final

from fedecado.common.errors import NormError
from fedecado.common.layout import Vector
from fedecado.server.algorithms.base import (
    Aggregated,
    Algorithm,
    Assignment,
    ClientVectors,
    Gather,
    HasCentre,
    Update,
)
from fedecado.server.numerics.basis import squared_length
from fedecado.server.numerics.circuit import Floats
from fedecado.server.numerics.robust import Pulls, Robust, draw_in, guard

S = TypeVar("S", bound=HasCentre)


@final
class Guarded(Generic[S]):
    """`inner`, with its rounds guarded by `robust`."""

    def __init__(self, inner: Algorithm[S], robust: Robust) -> None:
        self.inner, self.robust = inner, robust

    def init(self, central: Vector, vectors: ClientVectors) -> S:
        return self.inner.init(central, vectors)

    def assignment(self, state: S, client: str, weight: float) -> Assignment:
        return self.inner.assignment(state, client, weight)

    def gather(self, state: S, capacity: int = 0) -> Gather:
        return self.inner.gather(state, capacity)

    def pulls(self, gathered: Gather) -> Pulls:
        return self.inner.pulls(gathered)

    def average(self, rows: Vector, shares: Floats) -> Vector:
        """The mean of buffers, each column drawn in like a displacement's."""
        if k := self.robust.trimmed(len(rows)):
            rows = rows.copy()
            draw_in(rows, k)
        return self.inner.average(rows, shares)

    def aggregate(self, state: S, gathered: Gather, enrolled: int) -> Aggregated[S]:
        judged = guard(gathered.basis, self.inner.pulls(gathered), self.robust)
        aggregated = self.inner.aggregate(state, gathered, enrolled)
        seen = {"median_displacement": judged.median, "beyond_bound": judged.beyond}
        report = replace(aggregated.report, details={**aggregated.report.details, **seen})
        return replace(aggregated, report=report)

    def check(self, update: Update, usual: float) -> None:
        """Raise NormError if an update is to be dropped; `usual` is what recent displacements measured."""
        bound = self.robust.norm_bound
        if bound is None or self.robust.beyond != "drop":
            return
        moved = update.end - update.start
        length = math.sqrt(squared_length(moved) / len(moved))
        if length > bound * usual:
            raise NormError(
                f"client {update.client!r} moved by {length:.3g} (root mean square), usual is {usual:.3g} "
                f"and robust.norm_bound {bound:g}; lower its learning rate or epochs, or raise the bound"
            )

    def forget(self, state: S, client: str) -> S:
        return self.inner.forget(state, client)
