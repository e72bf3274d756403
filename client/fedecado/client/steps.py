"""How long a client's steps are: as the user says, or as long as an error tolerance lets them be.

A step x <- x - eta g(x) is forward Euler on dx/dt = -g(x). Its local truncation error is eta^2/2 |H g|, and
g(x) - g(x - eta g), which one more gradient of the same batch gives, is eta H g to first order:

    err = eta / 2 rms(g(x) - g(x - eta g))        in units of the parameters, as at the centre
    lam = rms(g(x) - g(x - eta g)) / (eta rms(g))        the curvature along the step

The error goes with eta^2, so eta sqrt(delta / err) meets the tolerance `delta`. Accuracy alone would let eta
grow without end where g is small, so it is bounded by stability as well: forward Euler needs eta lam < 2.
"""

import math
from collections.abc import Callable
from typing import Protocol, final

Probe = Callable[[float], tuple[float, float]]
"""eta -> (rms(g(x) - g(x - eta g)), rms(g(x))), on the batch of the step that is about to be made."""

EVERY = 8
"""Steps between two looks at the error: each costs a gradient, and curvature changes slowly."""
STABLE = 0.5
"""Bound on eta lam, a quarter of where forward Euler becomes unstable: lam is of one batch, in one direction.

With 1.0 the result depended more on a loose tolerance (digits, labels from Dirichlet(0.1)).
"""
TRIALS = 4
"""Looks at the error before the first step of a window, which starts from a guess."""
FARTHEST = 5.0
"""Largest factor from one look to the next, since both formulas hold near the eta they were measured at."""
SMALLEST, LARGEST = 1e-6, 10.0


class Steps(Protocol):
    """Gives the length of each step of a window, in order."""

    def next(self, probe: Probe) -> float:
        """eta of the step about to be made."""


@final
class Scheduled:
    """Lengths that are known beforehand."""

    def __init__(self, rates: list[float]) -> None:
        self._rates = iter(rates)

    def next(self, probe: Probe) -> float:
        del probe  # nothing to find out
        return next(self._rates)


@final
class Adaptive:
    """Lengths from the tolerance `delta`; `guess` is where the search begins.

    It remembers nothing from window to window: equal windows then have equal steps, wherever they are
    computed, and the search costs less than a step or two of an epoch.
    """

    def __init__(self, delta: float, guess: float) -> None:
        self._delta, self._eta, self._taken = delta, guess, 0

    def next(self, probe: Probe) -> float:
        if self._taken == 0:
            for _ in range(TRIALS):
                before = self._eta
                self._look(probe)
                if 0.5 < self._eta / before < 2:
                    break
        elif self._taken % EVERY == 0:
            self._look(probe)
        self._taken += 1
        return self._eta

    def _look(self, probe: Probe) -> None:
        change, size = probe(self._eta)
        self._eta = min(max(next_eta(self._eta, change, size, self._delta), SMALLEST), LARGEST)


def next_eta(eta: float, change: float, size: float, delta: float) -> float:
    """A step that meets the tolerance and is stable, judged by what was measured at `eta`."""
    if not (math.isfinite(change) and math.isfinite(size)):
        return eta / FARTHEST
    accurate = math.sqrt(2 * delta * eta / change) if change > 0 else math.inf
    stable = STABLE * eta * size / change if change > 0 else math.inf
    return min(max(min(accurate, stable), eta / FARTHEST), eta * FARTHEST)
