"""A round of few clients and short vectors in one compiled call, new flows included.

With vectors of some thousand numbers a round takes as long as its calls, in Python and into the library. Most
rounds are alike: nobody is late, and one step over all of T is enough. For these `native/round.h` has the
formulas of `stretch`, `circuit` and `leap`. Everything else, and whatever is wrong, is left to those.
"""

from collections.abc import Sequence
from functools import cache
from struct import Struct, pack
from typing import Final, NamedTuple

import numpy as np

from fedecado.common.layout import Vector
from fedecado.server.numerics import circuit, native, stretch
from fedecado.server.numerics.circuit import Floats
from fedecado.server.numerics.columns import BLOCK
from fedecado.server.numerics.native import FLOAT32, FLOAT64, address, in_place
from fedecado.server.numerics.options import CAUTIOUS, LEAST, MOST, STRAIGHT, Options
from fedecado.server.numerics.workspace import Workspace

CLIENTS: Final = 19
"""The most that there is room for in round.h."""


class Visit(NamedTuple):
    """What a client brings."""

    end: Vector
    flow: Vector | None
    square: float
    """Squared length of its flow."""
    time: float
    curvature: float
    weight: float


class Before(NamedTuple):
    """What a round begins with."""

    central: Vector
    F: Floats
    alone: bool
    """Whether nobody but its clients has a flow."""
    enrolled: int
    pace: float
    window: float


class Figures(NamedTuple):
    """Numbers of a window that was computed."""

    T: float
    window: float
    pace: float
    L: float
    C: float
    reach: float
    """The largest rho_i."""
    agreement: float
    """What clients answered; 0 if they did not."""
    change: float
    """RMS of what the centre moved by."""
    rate: float
    """RMS of dx_c/dt."""
    error: float
    """The largest truncation error."""


class Short(NamedTuple):
    """What a round ends with; nothing that it began with has changed."""

    central: Vector
    flows: list[Vector]
    F: Floats
    figures: Figures
    J: list[float]
    """Norm of every J_i."""
    moved: list[float]
    """Squared length of every displacement,"""
    squares: list[float]
    """and of every new flow."""


_FIGURES: Final = len(Figures._fields)


class ShortRounds:
    """Rounds with the same options."""

    def __init__(self, options: Options) -> None:
        compiled = options.horizon == "adaptive" and options.reach == "length"
        compiled = compiled and options.norm == "rms" and options.absent == "held"
        self._compiled = native.kernels() if compiled else None
        self._knobs = _knobs(options)
        self._workspace = Workspace()

    def takes(self, clients: int, parameters: int) -> bool:
        """Whether a round of this size may be for this, so that it is worth asking for its end."""
        return self._compiled is not None and 0 < clients <= CLIENTS and clients < parameters <= BLOCK

    def end(self, before: Before, visits: Sequence[Visit]) -> Short | None:
        """The end of a round whose clients all began with its centre; none if it is not for this."""
        compiled, central, a, size = self._compiled, before.central, len(visits), len(before.central)
        if compiled is None or not self.takes(a, size):
            return None
        if not (in_place(central) and in_place(before.F, FLOAT64) and all(map(_fits, visits))):
            return None
        after, moved, flows = (
            np.empty(size, FLOAT32),
            np.empty(size),
            [np.empty(size, FLOAT32) for _ in visits],
        )
        places: list[float] = [a, size, address(central), address(after), address(before.F), address(moved)]
        places += before[2:]
        for (end, flow, square, *of), becomes in zip(visits, flows, strict=True):
            places += (address(end), 0 if flow is None else address(flow), address(becomes), *of, square)
        rows, told = self._workspace.take(a + 1, size, FLOAT32), np.empty(_FIGURES + 3 * a)
        done = compiled.round(self._knobs, _layout(a).pack(*places), rows, told)
        self._workspace.give(rows)
        if not done:
            return None
        found: list[float] = told.tolist()
        each = found[_FIGURES:]
        return Short(after, flows, moved, Figures(*found[:_FIGURES]), each[::3], each[1::3], each[2::3])


def _fits(visit: Visit) -> bool:
    return in_place(visit.end) and (visit.flow is None or in_place(visit.flow))


@cache
def _layout(clients: int) -> Struct:
    """`struct round`"""
    return Struct("7N3d" + "3N4d" * clients)


def _knobs(options: Options) -> bytes:
    """`struct knobs`"""
    return pack(
        "15d",
        *(options.rho, options.inertia, options.kappa, options.inductance or 0.0, options.tolerance),
        *(options.window == "own", stretch.FASTER, stretch.SLOWER, LEAST, MOST),
        *(circuit.FOLLOW, circuit.STABLE, circuit.STIFFEST, STRAIGHT, CAUTIOUS),
    )
