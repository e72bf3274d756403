"""The scalars of one round: T, G_i, L and C from what the clients reported.

In plain floats: a few numbers per client cost less that way than the calls of numpy on them.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from fedecado.common.errors import NonFiniteError, NoUpdatesError, NumericsError, WindowError
from fedecado.common.records import record
from fedecado.server.numerics.options import CAUTIOUS, LEAST, STRAIGHT, Options

Floats = npt.NDArray[np.float64]

FOLLOW = 0.2
"""How far a horizon that adapts follows a round's windows, on a logarithmic scale.

With 1, a client that takes very long steps makes the stretch that was found before it act on its own time:
digits with tolerances from 1e-1 to 1e-3 fell by 10 to 30 points in single rounds. With 0, a fleet that lowers
its rates would not be followed.
"""


STABLE = 0.75
"""Of the over-relaxation at which a stiff direction begins to swing up, how much is made use of."""
STIFFEST = 0.5
"""The share of a Hessian's trace that is taken for its largest eigenvalue.

Networks that classify have about as many large ones as classes, and a client that holds few labels has fewer.
"""


class Timescale(NamedTuple):
    """What a round knows of time beforehand."""

    pace: float = 1.0
    """Of this round, as its clients want it; see `stretch`."""
    window: float = 0.0
    """Of the round before, 0 in the first one."""
    visits: float = 0.0
    """Windows that an enrolled client has computed before, on average."""
    staleness: float = 0.0
    """How many versions old its clients' starts are, on average."""


class Moves(NamedTuple):
    """What a round knows of how far its clients went."""

    lengths: Sequence[float] = ()
    """In any unit; if there are none they count as alike."""
    parameters: int = 1


class Memory(NamedTuple):
    """How many earlier windows of its client a flow looks back on, as updates are late."""

    most: float = 0.0
    """However late they are, and however many there have been; how much noise counts follows it, too."""
    windows: float = 0.0
    """Of those that there have been."""
    late: float = 0.0
    """How many more, if it changes by as much as it is long."""


BEGINNING, ALIKE, NONE = Timescale(), Moves(), Memory()


@record
class Circuit:
    """The element values of the round's circuit; arrays run over the a active clients."""

    T: float
    window: float
    """What T is a multiple of; the next round's follows from it."""
    pace: float
    """What T is over window and 1 + C / a, in a horizon that adapts."""
    times: Floats
    G: Floats
    L: float
    C: float
    rho: Floats
    """How far each trajectory is extrapolated, in lengths of its own."""
    memory: Memory = NONE

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
        moves: Moves = ALIKE,
    ) -> Self:
        """From what a round's clients reported, with n enrolled."""
        pace, window, visits, staleness = timescale
        T_i, h, w = list(map(float, times)), list(map(float, curvatures)), list(map(float, weights))
        _validate(T_i, h, w, enrolled)
        a, curvature = len(T_i), [w_i * h_i for w_i, h_i in zip(w, h, strict=True)]
        now = max(T_i) if options.horizon == "longest" else math.sqrt(sum([t * t for t in T_i]) / a)
        window = window * (now / window) ** FOLLOW if window and options.horizon == "adaptive" else now
        # Who answers late answers a centre that has moved on: the later, the more slowly it may move.
        light = 1.0 + options.inertia * (enrolled - a)
        late = 1.0 + (staleness if options.late == "heavier" else 0.0)
        C = 1.0 + (light - 1.0) * late
        clients = _Clients(T_i, curvature, moves.lengths or [1.0] * a)
        # A round adds a / (C + a) of T to the centre's motion: so that is a window, whatever C is.
        stretch = pace * (1.0 + light / a) if options.horizon == "adaptive" else 1.0
        rho, straight = clients.reach(options, stretch)
        if options.horizon == "adaptive":
            swing = clients.rest(moves.parameters) * clients.mean_reach(rho, stretch * window)
            limit = STABLE * (2.0 + 4.0 * C / a)
            if swing > limit:
                slower = max(min(pace, LEAST), pace * limit / swing)
                pace, stretch = slower, stretch * slower / pace
                rho, straight = clients.reach(options, stretch)
        T = stretch * window
        if not 0 < T < math.inf:
            raise _out_of_range(T_i, h)
        # "own" is the time over which the client's answer is known.
        own = options.window == "own"
        spans = [min(T, far * t) for far, t in zip(straight, T_i, strict=True)] if own else [T] * a
        G = [1.0 / span + wh for span, wh in zip(spans, curvature, strict=True)]
        reluctance = sum([1.0 / g for g in G]) / a
        L = options.inductance or options.kappa * (reluctance * reluctance) / (4 * a)
        if not (math.isfinite(max(G)) and 0 < L < math.inf):
            raise _out_of_range(T_i, h)
        # The more clients take part the younger flows are; the later they answer the less a single window
        # says of where the centre is now. Looking back slows flows down, so those in time do not.
        most = options.memory * (1.0 - a / enrolled)
        wanted = most * min(1.0, late - 1.0)
        windows = min(wanted, visits)
        memory = Memory(most, windows, min(wanted * late, visits) - windows)
        return cls(T, window, pace, np.array(T_i), np.array(G), L, C, np.array(rho), memory)


class _Clients(NamedTuple):
    """What a round's trajectories are like."""

    times: list[float]
    curvature: list[float]
    """w_i h_i"""
    lengths: Sequence[float]

    def reach(self, options: Options, stretch: float) -> tuple[list[float], list[float]]:
        """rho_i, how far trajectories are extrapolated, and how far they are believed to be straight."""
        stretch = max(1.0, stretch)
        most = stretch * options.rho
        if options.reach == "fixed":
            return (bound := [most] * len(self.times)), bound
        # Where there is no curvature there is no bound.
        bends = [wh * t for wh, t in zip(self.curvature, self.times, strict=True)]
        straight = [STRAIGHT / bend if bend else math.inf for bend in bends]
        if options.reach == "curvature":
            bound = [min(max(far, min(CAUTIOUS, most)), most) for far in straight]
            return bound, bound
        straight = [max(far, CAUTIOUS) for far in straight]
        # What few clients went says less of what is usual.
        a = len(self.lengths)
        usual = options.rho * (1.0 + 2.0 / a) * math.sqrt(sum([v * v for v in self.lengths]) / a)
        # Nobody whose window is as long as the others' is held back, however far it went.
        far = [stretch * (max(1.0, usual / v) if v else 1.0) for v in self.lengths]
        return [min(s, max(f, CAUTIOUS)) for s, f in zip(straight, far, strict=True)], straight

    def mean_reach(self, rho: list[float], T: float) -> float:
        """How many times its length the mean trajectory is extrapolated."""
        return sum([min(T / t, far) for t, far in zip(self.times, rho, strict=True)]) / len(rho)

    def rest(self, parameters: int) -> float:
        """How far clients have come to rest in their stiffest direction, from 0 to 1, on average."""
        stiff = STIFFEST * parameters
        left = sum([math.exp(-stiff * wh * t) for wh, t in zip(self.curvature, self.times, strict=True)])
        return 1.0 - left / len(self.times)


def _validate(times: list[float], curvatures: list[float], weights: list[float], enrolled: int) -> None:
    if len(times) == 0:
        raise NoUpdatesError("no updates to aggregate; a round needs at least one")
    if len(times) > enrolled:
        raise NumericsError(f"{len(times)} updates from {enrolled} enrolled clients")
    if bad := [t for t in times if not 0 < t < math.inf]:
        raise WindowError(f"window times must be positive and finite; got {bad[:5]}")
    if bad := [w for w in weights if not 0 < w < math.inf]:
        raise NonFiniteError(f"data weights must be positive and finite; got {bad[:5]}")
    if bad := [h for h in curvatures if not 0 <= h < math.inf]:
        raise NonFiniteError(f"curvatures must be finite and not negative; got {bad[:5]}")


def _out_of_range(times: list[float], curvatures: list[float]) -> NonFiniteError:
    return NonFiniteError(
        f"window times between {min(times):g} and {max(times):g} with curvatures up to {max(curvatures):g} "
        "leave floating-point range; check the learning rates the clients report"
    )
