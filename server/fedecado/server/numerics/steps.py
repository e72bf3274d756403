"""Step control by local truncation error on dyadic steps dt = T / 2**m.

Dyadic steps tile the window exactly and make dt repeat, so LU factors are reused. A step is
rejected when its error exceeds the tolerance (m + 1) and the next one is doubled when the
error was below a quarter of it (m - 1, as soon as the position is a multiple of the longer step).
"""

import math
from collections.abc import Callable
from typing import TypeVar

from fedecado.common.errors import NonFiniteError
from fedecado.common.records import record
from fedecado.server.numerics.options import Options

S = TypeVar("S")

Attempt = Callable[[S, float, float], tuple[S, float]]
"""(state, tau, dt) -> (state at tau + dt, truncation error)."""


@record
class Steps:
    """What the step control did over one window."""

    accepted: int
    rejected: int
    floored: int
    """Steps taken at the shortest length although their error exceeded the tolerance."""
    level: int
    """The m to start the next window with."""
    shortest: float
    """Length of the shortest accepted step."""
    error: float
    """Largest error among accepted steps."""


def whole_window(error: float, T: float, options: Options) -> Steps | None:
    """What is said of a single step over all of T, the first that is tried; none if it is too long."""
    _require_finite(error)
    floored = error > options.tolerance
    if floored and options.max_level:
        return None
    return Steps(1, 0, int(floored), 0, T, error)


def integrate(
    attempt: Attempt[S], state: S, T: float, level: int, options: Options, rejected: int = 0
) -> tuple[S, Steps]:
    """March `state` from tau = 0 to T, starting with steps of T / 2**level.

    So many steps have been `rejected` before.
    """
    m, position, end = min(level, options.max_level), 0, 1 << options.max_level
    accepted = floored = deepest = 0
    worst = 0.0
    while position < end:
        ticks = end >> m
        candidate, error = attempt(state, T * (position / end), T * (ticks / end))
        _require_finite(error)
        if error > options.tolerance:
            if m < options.max_level:
                m, rejected = m + 1, rejected + 1
                continue
            floored += 1
        state, position = candidate, position + ticks
        accepted, deepest, worst = accepted + 1, max(deepest, m), max(worst, error)
        if error < options.tolerance / 4 and m > 0 and position % (2 * ticks) == 0:
            m -= 1
    return state, Steps(accepted, rejected, floored, m, T / (1 << deepest), worst)


def _require_finite(error: float) -> None:
    if not math.isfinite(error):
        raise NonFiniteError("the central solve left floating-point range; the state is unchanged")
