"""One backward-Euler step as a linear system: factor once, solve many times.

    | D_1             -dt/L | | J_1+ |   | r_1 |
    |      ...         ...  | |  ... | = | ... |        D_i = 1 + dt / (L G_i)
    |           D_a   -dt/L | | J_a+ |   | r_a |
    | dt   ...  dt      C   | | x_c+ |   | r_c |

Eliminating the clients first leaves one pivot at the centre, C + dt^2/L sum_i 1/D_i: the LU factors
fill nothing in, all pivots are sums of positive terms (never singular for dt > 0, no row exchanges),
and a solve costs a rows: x_c+ first, and from it J_i+ = (r_i + dt/L x_c+) / D_i. LAPACK on the dense matrix
(scipy's lu_factor and lu_solve, which the tests hold this against) lost: it costs a^2 rows, and its threads
more than the work.

The unknowns may be flows I_i or their changes J_i: the matrix is the same.

Clients are ordered by G inside a factor, so neither the factorisation nor a cache hit depends on the
order in which clients arrived.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from fedecado.server.numerics.circuit import Floats

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Factor:
    """LU factors of the arrow matrix for clients sorted by G."""

    D: Floats
    """The clients' pivots."""
    row: float
    """dt: the entries below the diagonal, before division by D."""
    column: float
    """dt/L: the entries right of the diagonal, negated."""
    pivot: float
    """What is left at the centre."""

    def centre(self, rhs: Floats, flows: Floats) -> Floats:
        """x_c from its own right-hand side and the sum of the clients' r_i / D_i."""
        return np.asarray((rhs - self.row * flows) / self.pivot)


def factor(dt: float, L: float, C: float, G: Floats) -> Factor:
    """Factor the arrow matrix for sensitivities `G` in ascending order."""
    D = 1.0 + dt / (L * G)
    return Factor(D, dt, dt / L, C + dt * (dt / L) * float(np.sum(1.0 / D)))


class FactorCache(Generic[M]):
    """The most recently used of what is made of (dt, L, C, G), with hits and misses counted."""

    def __init__(self, make: Callable[[float, float, float, Any], M], capacity: int = 64) -> None:
        """`make` is given G as `get` is: an array, or a tuple."""
        self._make, self._capacity = make, capacity
        self._made: OrderedDict[tuple[float, float, float, bytes | tuple[float, ...]], M] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def get(self, dt: float, L: float, C: float, G: Floats | tuple[float, ...]) -> M:
        """What is made for `G` in ascending order."""
        key = (dt, L, C, G if isinstance(G, tuple) else G.tobytes())
        found = self._made.get(key)
        if found is not None:
            self.hits += 1
            self._made.move_to_end(key)
            return found
        self.misses += 1
        made = self._made[key] = self._make(dt, L, C, G)
        if len(self._made) > self._capacity:
            self._made.popitem(last=False)
        return made
