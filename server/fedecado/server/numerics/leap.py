"""A window of one step, in closed form.

Most rounds take a single step over all of T. Where no client is late it has, with y_i = x_c - n_i d_i from
client i's displacement d_i and how far n_i along it the trajectory is at T,

    x_c = T (sum b_i n_i d_i - F) / (C + T sum b_i),    J_i = b_i y_i,    b_i = T / (L D_i).

Its errors are J_i / (2 G_i) and (x_c + F T / C) / 2, and it ends with dx_c/dt = x_c / T. So all norms follow
from the inner products of x_c with the rows. In plain floats: for few clients numpy is more calls than work.
"""

import math
from collections.abc import Sequence

import numpy as np

from fedecado.common.records import record
from fedecado.server.numerics.arrow import FactorCache
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.circuit import Circuit, Floats


@record
class Straight:
    """What each flow moves by in a window of one step: toward (x_c - x_c_start) - along d_i."""

    toward: list[float]
    """b_i,"""
    along: list[float]
    """and b_i n_i."""


@record
class Leap:
    """Where the step ends."""

    x_c: Floats
    """Coefficients of what the centre moves by."""
    J: Floats
    """Those of what each active flow moves by,"""
    straight: Straight
    """and the same from where the centre ends."""
    F: Floats
    """Those of F."""
    norms: list[float]
    """RMS of every J_i, of what the centre moves by and of dx_c/dt."""
    error: float
    """The largest of the truncation errors; NaN if one is."""


def pivot(dt: float, L: float, C: float, G: Sequence[float]) -> float:
    """What is left at the centre when clients with sensitivities `G`, in ascending order, are eliminated."""
    return C + dt * sum([dt / (L + dt / g) for g in G])


def leap(basis: Basis, c: Circuit, pivots: FactorCache[float]) -> Leap:
    """The step, for clients that all start from the centre and a basis with inner products."""
    gram, F, T, L, C = basis.gram, basis.total_slot, c.T, c.L, c.C
    assert gram is not None and F is not None  # noqa: S101 - a programming error, not an input
    G, windows = c.G.tolist(), zip(c.times.tolist(), c.rho.tolist(), strict=True)
    far, root = T / pivots.get(T, L, C, tuple(sorted(G))), math.sqrt(basis.size)
    b = [T / (L + T / g) for g in G]
    n = [min(T / t, rho) for t, rho in windows]
    ahead = [b_i * n_i for b_i, n_i in zip(b, n, strict=True)]
    first, coefficients = basis.move_slots[0], [-far] * (len(G) + 1)
    coefficients[first : first + len(G)] = [far * along for along in ahead]
    x_c = np.array(coefficients)
    J = np.array(b)[:, None] * x_c
    # Their own entries: displacements lie one behind the other.
    J.reshape(-1)[first :: len(coefficients) + 1] -= ahead
    products = gram.dot(x_c)
    square, met, squares = float(x_c.dot(products)), products.tolist(), gram.diagonal().tolist()
    part, change = T / C, _root(square) / root
    worst = _root(square + part * (2 * met[F] + part * squares[F])) / (2 * root)
    norms = []
    for slot, (b_i, n_i, g) in enumerate(zip(b, n, G, strict=True), first):
        norm = b_i * _root(square - n_i * (2 * met[slot] - n_i * squares[slot])) / root
        norms.append(norm)
        error = norm / (2 * g)
        if error > worst or math.isnan(error):  # which stays: nothing is larger
            worst = error
    norms += (change, change / T)
    return Leap(x_c, J, Straight(b, ahead), (-C / T) * x_c, norms, worst)


def _root(square: float) -> float:
    """Of a square that may have come out below 0."""
    return 0.0 if square < 0 else math.sqrt(square)
