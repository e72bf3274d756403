"""The arrow system of one backward-Euler step, and the cache of its factors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import lu_factor, lu_solve

from fedecado.server.numerics.arrow import Factor, FactorCache, factor
from fedecado.server.numerics.circuit import Floats


def dense(dt: float, L: float, C: float, G: Floats) -> Floats:
    """The matrix as the page draws it, in the caller's order."""
    a = len(G)
    matrix = np.diag(np.append(1 + dt / (L * G), C))
    matrix[:a, a] = -dt / L
    matrix[a, :a] = dt
    return matrix


def solve(
    dt: float, L: float, C: float, G: Floats, rhs: Floats, cache: FactorCache[Factor] | None = None
) -> Floats:
    order = np.argsort(G, kind="stable")
    f = (cache or FactorCache(factor)).get(dt, L, C, G[order])
    D = f.D[np.argsort(order)][:, None]
    x_c = f.centre(rhs[-1], (rhs[:-1] / D)[order].sum(0))
    return np.vstack([(rhs[:-1] + f.column * x_c) / D, x_c])


@given(
    seed=st.integers(0, 10**6),
    a=st.integers(1, 12),
    dt=st.floats(1e-6, 1e3),
    L=st.floats(1e-6, 1e3),
    C=st.floats(1.0, 100.0),
)
def test_factor_and_solve_agree_with_the_dense_lu_of_scipy(
    seed: int, a: int, dt: float, L: float, C: float
) -> None:
    draw = np.random.default_rng(seed)
    G, rhs = draw.lognormal(0, 2, a), draw.standard_normal((a + 1, 4))
    matrix = dense(dt, L, C, G)
    found = solve(dt, L, C, G, rhs)
    expected = lu_solve(lu_factor(matrix), rhs)
    # Both are backward stable, so they may differ by the condition number times the rounding unit.
    tolerance = 1e-14 * np.linalg.cond(matrix) * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    residual = matrix @ found - rhs
    scale = np.abs(matrix).sum(1).max() * np.abs(found).max() + np.abs(rhs).max()
    assert np.abs(residual).max() <= 1e-13 * scale


@given(seed=st.integers(0, 10**6), a=st.integers(2, 8))
def test_permuting_clients_permutes_the_result_and_hits_the_same_factor(seed: int, a: int) -> None:
    draw = np.random.default_rng(seed)
    G, rhs = draw.lognormal(0, 1, a), draw.standard_normal((a + 1, 3))
    shuffle = draw.permutation(a)
    whole = np.append(shuffle, a)
    cache = FactorCache(factor)
    straight = solve(0.1, 0.5, 2.0, G, rhs, cache)
    shuffled = solve(0.1, 0.5, 2.0, G[shuffle], rhs[whole], cache)
    np.testing.assert_array_equal(shuffled, straight[whole])
    assert (cache.hits, cache.misses) == (1, 1)


@pytest.mark.parametrize("changed", ["dt", "L", "C", "G"])
def test_a_factor_is_reused_only_for_equal_values(changed: str) -> None:
    values = {"dt": 0.1, "L": 0.5, "C": 2.0}
    G, cache = np.array([1.0, 2.0]), FactorCache(factor)
    first = cache.get(**values, G=G)
    assert cache.get(**values, G=G.copy()) is first
    if changed == "G":
        G = np.nextafter(G, np.inf)
    else:
        values[changed] = np.nextafter(values[changed], np.inf)
    assert cache.get(**values, G=G) is not first
    assert (cache.hits, cache.misses) == (1, 2)


def test_the_cache_drops_the_factor_used_longest_ago() -> None:
    cache, G = FactorCache(factor, capacity=2), np.array([1.0])
    one, two = cache.get(1.0, 1.0, 1.0, G), cache.get(2.0, 1.0, 1.0, G)
    assert cache.get(1.0, 1.0, 1.0, G) is one
    cache.get(3.0, 1.0, 1.0, G)  # two goes
    assert cache.get(1.0, 1.0, 1.0, G) is one
    assert cache.get(2.0, 1.0, 1.0, G) is not two
    assert (cache.hits, cache.misses) == (2, 4)
