"""Multi-rate synchronisation: every client's trajectory on the round's common time.

    Gamma_i(tau) = x_i_start + min(tau / T_i, rho_i) (x_i_end - x_i_start)

A client that stopped early (T_i < T) is extrapolated along its displacement, one that ran
long is interpolated. Unbounded extrapolation (rho_i = inf) is unstable when windows differ a
lot, for the reason that over-relaxation beyond 2 is.
"""

import numpy as np

from fedecado.common.layout import Vector
from fedecado.server.numerics.circuit import Floats


def fraction(tau: float, times: Floats, rho: Floats | float) -> Floats:
    """How far along its displacement each trajectory is at `tau`."""
    return np.asarray(np.minimum(tau / times, rho))


def gamma(tau: float, starts: Vector, moves: Vector, times: Floats, rho: Floats | float) -> Vector:
    """All trajectories at `tau`; `starts` and `moves` have a row per client."""
    result: Vector = starts + fraction(tau, times, rho)[:, None] * moves
    return result
