"""The scalars of one round: T, G_i, L and C from what the clients reported.

In plain floats: a few numbers per client cost less that way than the calls of numpy on them.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self

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
        times: Iterable[float],
        curvatures: Iterable[float],
        weights: Iterable[float],
        enrolled: int,
        options: Options,
        *,
        timescale: Timescale = BEGINNING,
        staleness: float = 0.0,
    ) -> Self:
        """`staleness` is how many versions old the clients' starts are, on average."""
        stretch, window, visits = timescale
        T_i, h, w = ([float(v) for v in values] for values in (times, curvatures, weights))
        _validate(T_i, h, w, enrolled)
        a, curvature = len(T_i), [w_i * h_i for w_i, h_i in zip(w, h, strict=True)]
        now = max(T_i) if options.horizon == "longest" else math.sqrt(sum(t * t for t in T_i) / a)
        window = window * (now / window) ** FOLLOW if window and options.horizon == "adaptive" else now
        T = stretch * window
        if not 0 < T < math.inf:
            raise _out_of_range(T_i, h)
        rho, straight = _reach(T_i, curvature, options, T, stretch)
        # "own" is the time over which the client's answer is known.
        own = options.window == "own"
        spans = [min(T, far * t) for far, t in zip(straight, T_i, strict=True)] if own else [T] * a
        G = [1.0 / span + wh for span, wh in zip(spans, curvature, strict=True)]
        reluctance = sum(1.0 / g for g in G) / a
        L = options.inductance or options.kappa * (reluctance * reluctance) / (4 * a)
        # Who answers late answers a centre that has moved on: the later, the more slowly it may move.
        inertia = options.inertia * (1.0 + staleness if options.late == "heavier" else 1.0)
        C = 1.0 + inertia * (enrolled - a)
        if not (math.isfinite(max(G)) and 0 < L < math.inf):
            raise _out_of_range(T_i, h)
        # Where everyone takes part flows are one round old, and looking further back only slows them down.
        memory = min(options.memory, visits) if a < enrolled else 0.0
        return cls(T, window, np.array(T_i), np.array(G), L, C, np.array(rho), 1.0 / (1.0 + memory))


def _reach(
    times: list[float], curvature: list[float], options: Options, T: float, stretch: float
) -> tuple[list[float], list[float]]:
    """rho_i, how far trajectories are extrapolated, and how far they are believed to be straight."""
    most = max(1.0, stretch) * options.rho
    if options.reach == "fixed":
        return (bound := [most] * len(times)), bound
    # Where there is no curvature there is no bound.
    bends = [wh * t for wh, t in zip(curvature, times, strict=True)]
    straight = [STRAIGHT / bend if bend else math.inf for bend in bends]
    if options.reach == "curvature":
        bound = [min(max(far, min(CAUTIOUS, most)), most) for far in straight]
        return bound, bound
    straight = [max(far, CAUTIOUS) for far in straight]
    reached = [min(T / t, far) for t, far in zip(times, straight, strict=True)]
    level = _level(reached, max(options.rho, stretch))
    return [min(far, level) for far in straight], straight


def _level(values: list[float], mean: float) -> float:
    """The largest bound, of up to twice `mean`, with which the values' mean is no more than that."""
    level, left = 2 * mean, mean * len(values)
    if sum(min(value, level) for value in values) > left:
        ordered = sorted(values)
        for below, value in enumerate(ordered):
            if left <= value * (len(ordered) - below):
                return min(level, left / (len(ordered) - below))
            left -= value
    return level


def _validate(times: list[float], curvatures: list[float], weights: list[float], enrolled: int) -> None:
    if len(times) == 0:
        raise NoUpdatesError("no updates to aggregate; a round needs at least one")
    if len(times) > enrolled:
        raise NumericsError(f"{len(times)} updates from {enrolled} enrolled clients")
    if not all(0 < t < math.inf for t in times):
        raise WindowError(f"window times must be positive and finite; got {_offenders(times)}")
    if not all(0 < w < math.inf for w in weights):
        raise NonFiniteError(f"data weights must be positive and finite; got {_offenders(weights)}")
    if not all(0 <= h < math.inf for h in curvatures):
        raise NonFiniteError(f"curvatures must be finite and not negative; got {_offenders(curvatures, -1)}")


def _out_of_range(times: list[float], curvatures: list[float]) -> NonFiniteError:
    return NonFiniteError(
        f"window times between {min(times):g} and {max(times):g} with curvatures up to {max(curvatures):g} "
        "leave floating-point range; check the learning rates the clients report"
    )


def _offenders(values: list[float], above: float = 0) -> list[float]:
    return [v for v in values if not (math.isfinite(v) and v > above)][:5]
