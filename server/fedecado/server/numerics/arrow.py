"""One backward-Euler step as a linear system: factor once, solve many times.

    | D_1             -dt/L | | I_1+ |   | r_1 |
    |      ...         ...  | |  ... | = | ... |        D_i = 1 + dt / (L G_i)
    |           D_a   -dt/L | | I_a+ |   | r_a |
    | dt   ...  dt      C   | | x_c+ |   | r_c |

Never singular for dt > 0. Clients are ordered by G inside a factor, so neither the
factorisation nor a cache hit depends on the order in which clients arrived.
"""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import lu_factor, lu_solve

from fedecado.server.numerics.circuit import Floats


@dataclass(frozen=True, slots=True)
class Factor:
    """LU factors of the arrow matrix for clients sorted by G."""

    lu: Floats
    pivots: npt.NDArray[np.int32]


def factor(dt: float, L: float, C: float, G: Floats) -> Factor:
    """Factor the arrow matrix for sensitivities `G` in ascending order."""
    a = len(G)
    matrix = np.zeros((a + 1, a + 1))
    matrix[range(a), range(a)] = 1.0 + dt / (L * G)
    matrix[:a, a] = -dt / L
    matrix[a, :a] = dt
    matrix[a, a] = C
    lu, pivots = lu_factor(matrix, overwrite_a=True, check_finite=False)
    return Factor(lu, pivots)


def solve(factored: Factor, order: npt.NDArray[np.intp], rhs: Floats) -> Floats:
    """Solve for every column of `rhs`: a client rows in the caller's order, then the centre's."""
    place = np.append(order, len(order))
    solution = np.empty_like(rhs)
    solution[place] = lu_solve((factored.lu, factored.pivots), rhs[place], check_finite=False)
    return solution


class FactorCache:
    """The most recently used factors, with hits and misses counted."""

    def __init__(self, capacity: int = 64) -> None:
        self._capacity = capacity
        self._factors: OrderedDict[tuple[float, float, float, bytes], Factor] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def get(self, dt: float, L: float, C: float, G: Floats) -> Factor:
        """The factor for `G` in ascending order."""
        key = (dt, L, C, G.tobytes())
        found = self._factors.get(key)
        if found is not None:
            self.hits += 1
            self._factors.move_to_end(key)
            return found
        self.misses += 1
        made = self._factors[key] = factor(dt, L, C, G)
        if len(self._factors) > self._capacity:
            self._factors.popitem(last=False)
        return made
