"""Algorithms that correct each client's drift by a vector of its own: SCAFFOLD and FedDyn.

Both are written for the weighted objective sum_i w_i f_i, so that like FedECADO they come to rest
where the weighted gradients cancel; with equal weights they are the published methods. What is kept
of client i is w_i c_i, as a flow is w_i grad f_i: their sum then stays exact when clients join or
leave and the weights of the others change.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedecado.common.errors import ConfigError, NonFiniteError
from fedecado.common.layout import Vector
from fedecado.server.algorithms.averaging import move_centre
from fedecado.server.algorithms.base import Aggregated, Assignment, Plain
from fedecado.server.algorithms.gather import Gather
from fedecado.server.algorithms.updates import Update
from fedecado.server.algorithms.vectors import ClientVectors
from fedecado.server.numerics.circuit import Floats


@dataclass(frozen=True, slots=True)
class CorrectedState:
    """The centre, every client's w_i c_i, their sum (float64) and over how many clients it runs."""

    central: Vector
    vectors: ClientVectors
    total: Floats
    enrolled: int = 1
    version: int = 0
    time: float = 0.0

    def mean(self, enrolled: int | None = None) -> Vector:
        """c: the weighted mean of all clients' vectors."""
        return np.asarray((self.total / (enrolled or self.enrolled)).astype(self.central.dtype))

    def without(self, client: str) -> "CorrectedState":
        """Take a client that left for good out of the sum."""
        own = self.vectors.get(client)
        if own is None:
            return self
        self.vectors.drop(client)
        return CorrectedState(
            self.central, self.vectors, self.total - own, self.enrolled, self.version, self.time
        )


class Scaffold(Plain):
    """Control variates (Karimireddy et al., 2020): b = c_i - c."""

    def init(self, central: Vector, vectors: ClientVectors) -> CorrectedState:
        return CorrectedState(central, vectors, np.zeros(len(central)))

    def assignment(self, state: CorrectedState, client: str, weight: float) -> Assignment:
        own, c = state.vectors.get(client), state.mean()
        return Assignment(kept=-c if own is None else own / own.dtype.type(weight) - c)

    def gather(self, state: CorrectedState, capacity: int = 0) -> Gather:
        return Gather(state.central, state.version, capacity=capacity)

    def aggregate(self, state: CorrectedState, gathered: Gather, enrolled: int) -> Aggregated[CorrectedState]:
        moved = gathered.mix(moves=gathered.shares())
        _require_room(gathered)
        c, scalar = state.mean(), state.central.dtype.type

        def change(update: Update, move: Vector) -> Vector:
            tau = update.time * update.weight
            return scalar(update.weight) * (move * scalar(-1 / tau) - c)

        return _corrected(state, gathered, enrolled, moved, change)

    def forget(self, state: CorrectedState, client: str) -> CorrectedState:
        return state.without(client)


class FedDyn(Plain):
    """Dynamic regularisation (Acar et al., 2021): pull mu, b = the client's dual."""

    def __init__(self, mu: float = 0.1) -> None:
        if not 0 < mu < math.inf:
            raise ConfigError(f"FedDyn's mu is {mu!r}; it must be positive and finite")
        self._mu = mu

    def init(self, central: Vector, vectors: ClientVectors) -> CorrectedState:
        return CorrectedState(central, vectors, np.zeros(len(central)))

    def assignment(self, state: CorrectedState, client: str, weight: float) -> Assignment:
        return Assignment(pull=self._mu, kept=state.vectors.get(client), weight=weight)

    def gather(self, state: CorrectedState, capacity: int = 0) -> Gather:
        return Gather(state.central, state.version, capacity=capacity)

    def aggregate(self, state: CorrectedState, gathered: Gather, enrolled: int) -> Aggregated[CorrectedState]:
        q, scalar = gathered.shares(), state.central.dtype.type
        # The new c enters: it differs from the old one by -mu times this shift.
        shift = gathered.mix(moves=np.asarray(gathered.weights()) / enrolled)
        moved = gathered.mix(moves=q, starts=q) - state.mean(enrolled) / scalar(self._mu) + shift

        def change(update: Update, move: Vector) -> Vector:
            return scalar(-self._mu * update.weight) * move

        return _corrected(state, gathered, enrolled, moved, change)

    def forget(self, state: CorrectedState, client: str) -> CorrectedState:
        return state.without(client)


def _require_room(gathered: Gather) -> None:
    """Raise if a displacement over its tau_i, which `finish` will form, leaves the model's range."""
    dtype = gathered.basis.dtype
    tiny, largest = float(np.finfo(dtype).tiny), float(np.finfo(dtype).max) / 4
    for update, square in zip(gathered.clients.values(), gathered.basis.squares(), strict=True):
        tau = update.time * update.weight
        slope = update.weight * math.sqrt(square) / tau if tau > tiny else math.inf
        if not slope < largest:
            raise NonFiniteError(
                f"client {update.client!r} moved by {math.sqrt(square):.3g} in a window of T_i = "
                f"{update.time!r}; that slope leaves the range of {dtype}"
            )


def _corrected(
    state: CorrectedState,
    gathered: Gather,
    enrolled: int,
    moved: Vector,
    change: Callable[[Update, Vector], Vector],
) -> Aggregated[CorrectedState]:
    """Move the centre; `finish` moves each client's vector, and their sum by as much."""
    central, report = move_centre(state.central, moved, gathered)

    def finish() -> CorrectedState:
        total = state.total.copy()
        for client, update, move in gathered.moves():
            own, moved_by = state.vectors.get(client), change(update, move)
            fresh = moved_by if own is None else own + moved_by
            total += fresh if own is None else np.subtract(fresh, own, dtype=np.float64)
            state.vectors.put(client, fresh)
        return CorrectedState(
            central, state.vectors, total, enrolled, state.version + 1, state.time + report.time
        )

    return Aggregated(central, report, finish)
