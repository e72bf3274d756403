"""Algorithms that correct each client's drift by a vector of its own: SCAFFOLD and FedDyn.

Both are written for the weighted objective sum_i w_i f_i, so that like FedECADO they come to rest
where the weighted gradients cancel; with equal weights they are the published methods.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedecado.common.errors import ConfigError
from fedecado.common.layout import Vector
from fedecado.server.algorithms.averaging import move_centre
from fedecado.server.algorithms.base import Aggregated, Assignment, ClientVectors, Gather


@dataclass(frozen=True, slots=True)
class CorrectedState:
    """The centre, the clients' vectors, and their weighted mean `c` over all enrolled clients."""

    central: Vector
    vectors: ClientVectors
    c: Vector
    version: int = 0
    time: float = 0.0


class Scaffold:
    """Control variates (Karimireddy et al., 2020): b = c_i - c."""

    def init(self, central: Vector, vectors: ClientVectors) -> CorrectedState:
        return CorrectedState(central, vectors, np.zeros_like(central))

    def assignment(self, state: CorrectedState, client: str, weight: float) -> Assignment:
        del weight  # the weighting is in c
        own = state.vectors.get(client)
        return Assignment(drift=-state.c if own is None else own - state.c)

    def gather(self, state: CorrectedState, capacity: int = 0) -> Gather:
        return Gather(state.central, state.version, capacity=capacity)

    def aggregate(self, state: CorrectedState, gathered: Gather, enrolled: int) -> Aggregated[CorrectedState]:
        moved = gathered.mix(moves=gathered.shares())

        def change(client: str) -> Vector:
            update = gathered.clients[client]
            tau = update.time * update.weight
            return (update.start - update.end) / update.end.dtype.type(tau) - state.c

        return _corrected(state, gathered, enrolled, moved, change)

    def forget(self, state: CorrectedState, client: str) -> CorrectedState:
        state.vectors.drop(client)
        return state


class FedDyn:
    """Dynamic regularisation (Acar et al., 2021): pull mu, b = the client's dual."""

    def __init__(self, mu: float = 0.1) -> None:
        if not mu > 0:
            raise ConfigError(f"FedDyn's mu is {mu!r}; it must be positive")
        self._mu = mu

    def init(self, central: Vector, vectors: ClientVectors) -> CorrectedState:
        return CorrectedState(central, vectors, np.zeros_like(central))

    def assignment(self, state: CorrectedState, client: str, weight: float) -> Assignment:
        del weight  # the weighting is in c
        return Assignment(pull=self._mu, drift=state.vectors.get(client))

    def gather(self, state: CorrectedState, capacity: int = 0) -> Gather:
        return Gather(state.central, state.version, capacity=capacity)

    def aggregate(self, state: CorrectedState, gathered: Gather, enrolled: int) -> Aggregated[CorrectedState]:
        q, mu = gathered.shares(), state.central.dtype.type(self._mu)
        shift = gathered.mix(moves=gathered.weights() / enrolled)
        # c is already the new one here: it moves by -mu * shift, so -c/mu gains + shift.
        moved = gathered.mix(moves=q, starts=q) - state.c / mu + shift

        def change(client: str) -> Vector:
            update = gathered.clients[client]
            return -mu * (update.end - update.start)

        return _corrected(state, gathered, enrolled, moved, change)

    def forget(self, state: CorrectedState, client: str) -> CorrectedState:
        state.vectors.drop(client)
        return state


def _corrected(
    state: CorrectedState,
    gathered: Gather,
    enrolled: int,
    moved: Vector,
    change: Callable[[str], Vector],
) -> Aggregated[CorrectedState]:
    """Move the centre; `finish` moves each client's vector, and c by their weighted sum over n."""
    central, report = move_centre(state.central, moved, gathered)

    def finish() -> CorrectedState:
        c = state.c.astype(np.float64)
        for client, update in gathered.clients.items():
            moved_by = change(client)
            own = state.vectors.get(client)
            state.vectors.put(client, moved_by if own is None else own + moved_by)
            c += (update.weight / enrolled) * moved_by
        return CorrectedState(
            central, state.vectors, c.astype(central.dtype), state.version + 1, state.time + report.time
        )

    return Aggregated(central, report, finish)
