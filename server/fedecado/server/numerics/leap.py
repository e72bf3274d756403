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
class Leap:
    """Where the step ends."""

    x_c: Floats
    """Coefficients of what the centre moves by."""
    J: Floats
    """Those of what each active flow moves by."""
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
    gram, F, T = basis.gram, basis.total_slot, c.T
    assert gram is not None and F is not None  # noqa: S101 - a programming error, not an input
    G = c.G.tolist()
    far = T / pivots.get(T, c.L, c.C, tuple(sorted(G)))
    b = [T / (c.L + T / g) for g in G]
    n = [min(T / t, rho) for t, rho in zip(c.times.tolist(), c.rho.tolist(), strict=True)]
    ahead = [b_i * n_i for b_i, n_i in zip(b, n, strict=True)]
    first, coefficients = basis.move_slots[0], [-far] * (len(G) + 1)
    coefficients[first : first + len(G)] = [far * along for along in ahead]
    x_c = np.array(coefficients)
    J = np.array(b)[:, None] * x_c
    J.reshape(-1)[first :: len(x_c) + 1] -= ahead  # their own entries: displacements lie one behind the other
    products = gram.dot(x_c)
    square, root = float(x_c.dot(products)), math.sqrt(basis.size)
    met, squares = products.tolist(), gram.diagonal().tolist()
    change, rms = _root(square) / root, []
    for slot, (b_i, n_i) in enumerate(zip(b, n, strict=True), first):
        rms.append(b_i * _root(square - n_i * (2 * met[slot] - n_i * squares[slot])) / root)
    errors = [size / (2 * g) for size, g in zip(rms, G, strict=True)]
    part = T / c.C
    errors.append(_root(square + part * (2 * met[F] + part * squares[F])) / (2 * root))
    worst = math.nan if any(map(math.isnan, errors)) else max(errors)
    return Leap(x_c, J, (-c.C / T) * x_c, [*rms, change, change / T], worst)


def _root(square: float) -> float:
    """Of a square that may have come out below 0."""
    return 0.0 if square < 0 else math.sqrt(square)
