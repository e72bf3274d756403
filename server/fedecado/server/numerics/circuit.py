"""The scalars of one round: T, G_i, L and C from what the clients reported."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from fedecado.common.errors import NonFiniteError, NoUpdatesError, NumericsError, WindowError
from fedecado.server.numerics.options import CAUTIOUS, STRAIGHT, Options

Floats = npt.NDArray[np.float64]

FOLLOW = 0.2
"""How far a horizon that adapts follows a round's windows, on a logarithmic scale.

With 1, a client that takes very long steps makes the stretch that was found before it act on its own time:
digits with tolerances from 1e-1 to 1e-3 fell by 10 to 30 points in single rounds. With 0, a fleet that lowers
its rates would not be followed.
"""


class Timescale(NamedTuple):
    """What a round knows of time beforehand."""

    stretch: float = 1.0
    """Of this round."""
    window: float = 0.0
    """Of the round before, 0 in the first one."""
    visits: float = 0.0
    """Windows that an enrolled client has computed before, on average."""


BEGINNING = Timescale()


@dataclass(frozen=True, slots=True)
class Circuit:
    """The element values of the round's circuit; arrays run over the a active clients."""

    T: float
    window: float
    """What T is a multiple of; the next round's follows from it."""
    times: Floats
    G: Floats
    L: float
    C: float
    rho: Floats
    """How far each trajectory is extrapolated, in lengths of its own."""
    renewal: float = 1.0
    """How much of what a flow changes by in the window is kept.

    A flow that is renewed by 1 / k in its client's k-th window is the mean of all of them.
    """

    @classmethod
    def build(
        cls,
        times: npt.ArrayLike,
        curvatures: npt.ArrayLike,
        weights: npt.ArrayLike,
        enrolled: int,
        options: Options,
        *,
        timescale: Timescale = BEGINNING,
        staleness: float = 0.0,
    ) -> Self:
        """`staleness` is how many versions old the clients' starts are, on average."""
        stretch, window, visits = timescale
        T_i, h, w = (np.asarray(v, np.float64) for v in (times, curvatures, weights))
        _validate(T_i, h, w, enrolled)
        # What overflows is caught below, with a message; where there is no curvature there is no bound.
        with np.errstate(over="ignore", divide="ignore"):
            now = float(T_i.max()) if options.horizon == "longest" else math.sqrt(_mean(np.square(T_i)))
            window = window * (now / window) ** FOLLOW if window and options.horizon == "adaptive" else now
            T = stretch * window
            rho, straight = _reach(T_i, w * h, options, T, stretch)
            # "own" is the time over which the client's answer is known.
            span = np.minimum(T, straight * T_i) if options.window == "own" else np.full_like(T_i, T)
            G = 1.0 / span + w * h
            reluctance = _mean(1.0 / G)
            L = options.inductance or options.kappa * (reluctance * reluctance) / (4 * len(G))
        # Who answers late answers a centre that has moved on: the later, the more slowly it may move.
        inertia = options.inertia * (1.0 + staleness if options.late == "heavier" else 1.0)
        C = 1.0 + inertia * (enrolled - len(G))
        if not (math.isfinite(T) and np.isfinite(G).all() and L > 0 and math.isfinite(L)):
            raise NonFiniteError(
                f"window times between {T_i.min():g} and {T_i.max():g} with curvatures up to {h.max():g} "
                "leave floating-point range; check the learning rates the clients report"
            )
        # Where everyone takes part flows are one round old, and looking further back only slows them down.
        memory = min(options.memory, visits) if len(G) < enrolled else 0.0
        return cls(T, window, T_i, G, L, C, rho, 1.0 / (1.0 + memory))


def _mean(values: Floats) -> float:
    """As numpy's, in a third of the time for a few numbers."""
    return float(values.sum()) / len(values)


def _reach(
    times: Floats, curvature: Floats, options: Options, T: float, stretch: float
) -> tuple[Floats, Floats]:
    """rho_i, how far trajectories are extrapolated, and how far they are believed to be straight."""
    most = max(1.0, stretch) * options.rho
    if options.reach == "fixed":
        bound = np.full_like(times, most)
        return bound, bound
    straight = STRAIGHT / (curvature * times)
    if options.reach == "curvature":
        bound = np.minimum(np.maximum(straight, min(CAUTIOUS, most)), most)
        return bound, bound
    straight = np.maximum(straight, CAUTIOUS)
    return np.minimum(straight, _level(np.minimum(T / times, straight), max(options.rho, stretch))), straight


def _level(values: Floats, mean: float) -> float:
    """The largest bound, of up to twice `mean`, with which the values' mean is no more than that."""
    level, left = 2 * mean, mean * len(values)
    if np.minimum(values, level).sum() > left:
        ordered = np.sort(values).tolist()
        for below, value in enumerate(ordered):
            if left <= value * (len(ordered) - below):
                return min(level, left / (len(ordered) - below))
            left -= value
    return level


def _validate(times: Floats, curvatures: Floats, weights: Floats, enrolled: int) -> None:
    if len(times) == 0:
        raise NoUpdatesError("no updates to aggregate; a round needs at least one")
    if len(times) > enrolled:
        raise NumericsError(f"{len(times)} updates from {enrolled} enrolled clients")
    # The least and the greatest are NaN if one is.
    if not (times.min() > 0 and times.max() < math.inf):
        raise WindowError(f"window times must be positive and finite; got {_offenders(times)}")
    if not (weights.min() > 0 and weights.max() < math.inf):
        raise NonFiniteError(f"data weights must be positive and finite; got {_offenders(weights)}")
    if not (curvatures.min() >= 0 and curvatures.max() < math.inf):
        raise NonFiniteError(f"curvatures must be finite and not negative; got {_offenders(curvatures, -1)}")


def _offenders(values: Floats, above: float = 0) -> list[Any]:
    return [float(v) for v in values if not (math.isfinite(v) and v > above)][:5]
