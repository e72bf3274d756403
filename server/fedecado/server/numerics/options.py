"""Every knob of the central solve, with its range and default."""

import math
from dataclasses import dataclass
from typing import Literal, Self, get_args

from fedecado.common.errors import ConfigError

Norm = Literal["rms", "max"]
WindowRule = Literal["own", "common"]
Late = Literal["heavier", "alike"]
Absent = Literal["held", "ignored"]
Reach = Literal["length", "curvature", "fixed"]
Horizon = Literal["adaptive", "rms", "longest"]

LEAST, MOST = 0.25, 16.0
"""Bounds of the pace, see `stretch`."""
CAUTIOUS = 1.2
"""An over-relaxation that was stable on every quadratic tried, whatever its curvature."""
STRAIGHT = 0.1
"""The share of its time constant 1 / (w_i h_i) over which a trajectory counts as a straight line.

h_i is the mean curvature, and the directions that matter for stability are tens of times as stiff.
"""


@dataclass(frozen=True, slots=True)
class Options:
    """Knobs of the central solve; the defaults are the ones to start from."""

    rho: float = 1.0
    """How far trajectories are extrapolated; infinity never bounds."""
    reach: Reach = "length"
    """What `rho` counts: lengths that the round's clients went, in the root mean square, or lengths of the
    client's own; both times the stretch T / window. But for "fixed" a client's curvature bounds it further,
    to a tenth of its time constant 1 / (w_i h_i)."""
    horizon: Horizon = "adaptive"
    """The round's common time T: the root mean square of its windows, stretched while clients go along with
    the centre (see `stretch`) or as it is, or the longest of them."""
    inertia: float = 0.3
    """lam: the share of an absent client's capacitance that loads the centre (0 to 1)."""
    late: Late = "heavier"
    """Whether that share, and the memory, grow with how late a round's updates are."""
    memory: float = 1.0
    """How much of what flows contradict themselves in is kept out of the windows, and how many earlier
    windows a late one looks back on; times 1 - a / n, as it matters where few take part."""
    kappa: float = 1.0
    """Damping factor of the inductance rule; 1 is critical damping."""
    inductance: float | None = None
    """A fixed L instead of the damping rule."""
    tolerance: float = 0.1
    """delta: the local truncation error that a step may have, in units of the parameters."""
    norm: Norm = "rms"
    """How the truncation error is measured over the parameters."""
    window: WindowRule = "own"
    """The time a sensitivity is taken over: what each trajectory really spans, or T for all."""
    absent: Absent = "held"
    """Absent clients keep their last flow in the balance, or are left out of it (biased)."""
    max_level: int = 12
    """The shortest step is T / 2**max_level."""

    def __post_init__(self) -> None:
        _require(self.rho >= 1, "rho", self.rho, "1 or more; infinity means no bound")
        _require(self.reach in get_args(Reach), "reach", self.reach, "'length', 'curvature' or 'fixed'")
        _require(self.horizon in get_args(Horizon), "horizon", self.horizon, "'adaptive', 'rms' or 'longest'")
        _require(0 <= self.inertia <= 1, "inertia", self.inertia, "between 0 and 1")
        _require(self.late in get_args(Late), "late", self.late, "'heavier' or 'alike'")
        _require(0 <= self.memory < math.inf, "memory", self.memory, "0 or more, and finite")
        _require(0 < self.kappa < math.inf, "kappa", self.kappa, "positive and finite")
        _require(0 < self.tolerance < math.inf, "tolerance", self.tolerance, "positive and finite")
        if self.inductance is not None:
            _require(0 < self.inductance < math.inf, "inductance", self.inductance, "positive, or none")
        _require(self.norm in get_args(Norm), "norm", self.norm, "'rms' or 'max'")
        _require(self.window in get_args(WindowRule), "window", self.window, "'own' or 'common'")
        _require(self.absent in get_args(Absent), "absent", self.absent, "'held' or 'ignored'")
        _require(0 <= self.max_level <= 30, "max_level", self.max_level, "between 0 and 30")

    @classmethod
    def paper(cls, inductance: float = 1.0) -> Self:
        """The published choices: no bound, active clients only, maximum norm, a fixed L."""
        return cls(
            rho=math.inf,
            reach="fixed",
            horizon="longest",
            inertia=0.0,
            late="alike",
            memory=0.0,
            inductance=inductance,
            norm="max",
            window="common",
            absent="ignored",
        )


def _require(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise ConfigError(f"solver option {name} is {value!r}; it must be {allowed}")
