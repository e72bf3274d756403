"""Any algorithm behind rules against bad clients.

The rules see the round's displacements just before the algorithm does. What it then computes, flows and
control variates included, follows from the guarded ones alone.
"""

import math
from dataclasses import replace
from typing import Generic, TypeVar, final

import numpy as np

from fedecado.common.errors import NormError
from fedecado.common.layout import Vector
from fedecado.server.algorithms.base import Aggregated, Algorithm, Assignment, HasCentre
from fedecado.server.algorithms.fedecado import FedEcadoState
from fedecado.server.algorithms.gather import Gather
from fedecado.server.algorithms.updates import Update
from fedecado.server.algorithms.vectors import RESPONSE, ClientVectors
from fedecado.server.numerics.circuit import Floats
from fedecado.server.numerics.finite import squared_length
from fedecado.server.numerics.response import Response, distrusted, sketches
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
        heard = self._hear(state, gathered)
        bound = self.robust.response_bound
        out = frozenset[str]() if bound is None else distrusted(heard, bound)
        places = [place for place, client in enumerate(gathered.clients) if client in out]
        judged = guard(gathered.basis, self.inner.pulls(gathered), self.robust, places)
        aggregated = self.inner.aggregate(state, gathered, enrolled)
        seen = {"median_displacement": judged.median, "beyond_bound": judged.beyond}
        if bound is not None:
            seen["distrusted"] = len(out)
        # In place: the algorithm itself completes its report when the state is complete.
        aggregated.report.details.update(seen)

        def finish() -> S:
            after = aggregated.finish()
            if isinstance(state, FedEcadoState):
                for client, response in heard.items():
                    state.flows.put(RESPONSE + client, response.pack())
            return after

        report = replace(aggregated.report, distrusted=out)
        # Clients do not know what counted of their updates, so none can repeat what became of its vector.
        return replace(aggregated, report=report, finish=finish, moved={})

    def _hear(self, state: S, gathered: Gather) -> dict[str, Response]:
        """How the round's clients follow their flows, by what they sent."""
        if self.robust.response_bound is None or not isinstance(state, FedEcadoState):
            return {}
        size, clients = len(state.central), list(gathered.clients)
        moves = sketches([move for _, _, move in gathered.moves()], size)
        rates = moves / np.asarray(gathered.times())[:, None]
        flows = sketches(gathered.flows(), size)
        heard = {}
        for client, rate, flow in zip(clients, rates, flows, strict=True):
            known = state.flows.get(RESPONSE + client)
            heard[client] = Response(rate, flow) if known is None else Response.unpack(known).then(rate, flow)
        return heard

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
        if isinstance(state, FedEcadoState):
            state.flows.drop(RESPONSE + client)
        return self.inner.forget(state, client)
