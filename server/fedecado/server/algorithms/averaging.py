"""Algorithms whose centre takes one step along the clients' displacements.

They share a state (the central vector, and the server optimiser's moments where it has any) and
differ in one function, from the gathered updates to the displacement of the centre.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedecado.common.errors import ConfigError, NonFiniteError
from fedecado.common.layout import Vector
from fedecado.server.algorithms.base import Aggregated, Assignment, Plain, Report
from fedecado.server.algorithms.gather import Gather
from fedecado.server.algorithms.vectors import ClientVectors
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.circuit import Floats
from fedecado.server.numerics.finite import squared_length
from fedecado.server.numerics.robust import Pulls
from fedecado.server.numerics.workspace import Workspace

Moments = tuple[Vector, ...]
Step = Callable[[Gather, Moments], tuple[Vector, Moments]]
"""(gathered, moments) -> (displacement of the centre, new moments)."""
Reach = Callable[[Gather], Floats]
"""How far the rule stretches each displacement, shares apart."""


@dataclass(frozen=True, slots=True)
class AveragingState:
    """The centre; `moments` belongs to the server optimiser."""

    central: Vector
    version: int = 0
    time: float = 0.0
    moments: Moments = ()


class Averaging(Plain):
    """A displacement rule at the centre, and a pull of the clients towards their start."""

    def __init__(self, step: Step, pull: float = 0.0, reach: Reach | None = None) -> None:
        if not 0 <= pull < math.inf:
            raise ConfigError(f"the proximal pull mu is {pull!r}; it must be 0 or more, and finite")
        self._step, self._pull, self._reach = step, pull, reach
        self._workspace = Workspace()

    def init(self, central: Vector, vectors: ClientVectors) -> AveragingState:
        del vectors  # no client has a vector of its own
        return AveragingState(central)

    def assignment(self, state: AveragingState, client: str, weight: float) -> Assignment:
        del state, client, weight  # the same for all
        return Assignment(pull=self._pull)

    def gather(self, state: AveragingState, capacity: int = 0) -> Gather:
        size, dtype = len(state.central), state.central.dtype
        # `move_centre` sees what is not finite, so most have no need to look at an update before they mix it.
        basis = partial(Basis, size, dtype, capacity=capacity, measured=False, workspace=self._workspace)
        return Gather(state.central, state.version, basis=basis)

    def aggregate(self, state: AveragingState, gathered: Gather, enrolled: int) -> Aggregated[AveragingState]:
        del enrolled  # only the active clients matter
        moved, moments = self._step(gathered, state.moments)
        central, report = move_centre(state.central, moved, gathered)

        def finish() -> AveragingState:
            gathered.basis.release()
            return AveragingState(central, state.version + 1, state.time + report.time, moments)

        return Aggregated(central, report, finish)

    def forget(self, state: AveragingState, client: str) -> AveragingState:
        del client  # nothing is kept about it
        return state

    def pulls(self, gathered: Gather) -> Pulls:
        plain = super().pulls(gathered)
        return plain if self._reach is None else replace(plain, scale=self._reach(gathered))


def move_centre(central: Vector, moved: Vector, gathered: Gather) -> tuple[Vector, Report]:
    """The centre after a displacement, in the memory of that, and what to report of it."""
    T = max(gathered.times())
    rms = math.sqrt(squared_length(moved) / len(moved))
    if not np.isfinite(rms):
        raise NonFiniteError("the central step left floating-point range; the state is unchanged")
    report = Report(updates=len(gathered), time=T, rate=rms / T, details={"central_change": rms})
    return np.add(central, moved, out=moved), report


def fedavg() -> Averaging:
    """Weighted mean of the end states (McMahan et al., 2017)."""

    def step(gathered: Gather, moments: Moments) -> tuple[Vector, Moments]:
        return _mean_end(gathered), moments

    return Averaging(step)


def fedprox(mu: float = 0.01) -> Averaging:
    """FedAvg whose clients are pulled towards their start (Li et al., 2020)."""

    def step(gathered: Gather, moments: Moments) -> tuple[Vector, Moments]:
        return _mean_end(gathered), moments

    return Averaging(step, pull=mu)


def fednova(mu: float = 0.0) -> Averaging:
    """Displacements normalised by each client's own sum of learning rates (Wang et al., 2020)."""

    def reach(gathered: Gather) -> Floats:
        q, tau = gathered.shares(), _rate_sums(gathered)
        return np.asarray((q @ tau) / tau)

    def step(gathered: Gather, moments: Moments) -> tuple[Vector, Moments]:
        return gathered.mix(moves=gathered.shares() * reach(gathered), last=True), moments

    return Averaging(step, pull=mu, reach=reach)


def fedbuff(rate: float = 1.0) -> Averaging:
    """Displacements discounted by staleness s as 1 / sqrt(1 + s) (Nguyen et al., 2022)."""
    _require_positive("server rate", rate)

    def step(gathered: Gather, moments: Moments) -> tuple[Vector, Moments]:
        discount = 1.0 / np.sqrt(1.0 + np.asarray(gathered.staleness()))
        return gathered.mix(moves=rate * gathered.shares() * discount, last=True), moments

    return Averaging(step)


def fedadam(rate: float = 0.03, beta1: float = 0.9, beta2: float = 0.99, floor: float = 1e-3) -> Averaging:
    """Adam at the centre on the mean displacement (Reddi et al., 2021)."""
    _require_positive("server rate", rate)
    _require_positive("floor", floor)
    for name, beta in (("beta1", beta1), ("beta2", beta2)):
        if not 0 <= beta < 1:
            raise ConfigError(f"{name} is {beta!r}; it must be in [0, 1)")

    def step(gathered: Gather, moments: Moments) -> tuple[Vector, Moments]:
        delta = gathered.mix(moves=gathered.shares(), last=True)
        m, v = moments or (np.zeros_like(delta), np.zeros_like(delta))
        m = beta1 * m + (1 - beta1) * delta
        v = beta2 * v + (1 - beta2) * np.square(delta)
        return rate * m / (np.sqrt(v) + floor), (m, v)

    return Averaging(step)


def fedexp(epsilon: float = 1e-3) -> Averaging:
    """Mean displacement, extrapolated as far as the clients disagree (Jhunjhunwala et al., 2023)."""
    _require_positive("epsilon", epsilon)

    def step(gathered: Gather, moments: Moments) -> tuple[Vector, Moments]:
        q = gathered.shares()
        squares = gathered.basis.squares()
        mean = gathered.mix(moves=q, last=True)
        length = squared_length(mean)
        stretch = max(1.0, float(q @ squares) / (2 * (length + epsilon)))
        return np.multiply(mean, mean.dtype.type(stretch), out=mean), moments

    return Averaging(step)


def _mean_end(gathered: Gather) -> Vector:
    q = gathered.shares()
    return gathered.mix(moves=q, starts=q, last=True)


def _rate_sums(gathered: Gather) -> Vector:
    """tau_i, the sum of a client's learning rates: its window T_i is that divided by w_i."""
    return np.multiply(gathered.times(), gathered.weights())


def _require_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigError(f"{name} is {value!r}; it must be positive and finite")
