"""The closed form of a window of one step against the step that `whole` takes."""

import math

import numpy as np
import pytest

from fedecado.common.errors import NonFiniteError
from fedecado.server.numerics import whole
from fedecado.server.numerics.arrow import FactorCache
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.circuit import Circuit
from fedecado.server.numerics.leap import leap, pivot
from fedecado.server.numerics.options import Options
from fedecado.server.numerics.reduced import Reduced
from fedecado.server.numerics.spread import Own

NOBODY = np.empty(0, np.intp)


def a_round(a: int, size: int, seed: int, *, total_last: bool = False) -> tuple[Basis, Circuit]:
    draw = np.random.default_rng((seed, a))
    basis, x_c, F = Basis(size, np.float64, gram=True), draw.standard_normal(size), draw.standard_normal(size)
    if not total_last:
        basis.set_total(F)
    for _ in range(a):
        basis.append(x_c + draw.standard_normal(size), x_c)
    if total_last:
        basis.set_total(F)
    times, curvatures = draw.uniform(0.02, 0.3, a), draw.uniform(0, 3, a)
    return basis, Circuit.build(times, curvatures, draw.lognormal(0, 0.5, a), a + 7, Options())


@pytest.mark.parametrize("total_last", [False, True])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("a", [1, 2, 5, 20])
def test_a_leap_is_one_step_over_the_whole_window(a: int, seed: int, total_last: bool) -> None:
    basis, circuit = a_round(a, 40, seed, total_last=total_last)
    own = Own(np.asarray(basis.move_slots), NOBODY, NOBODY)
    march = whole.March(basis, own, circuit, FactorCache(whole.factor), basis.rms)
    rows, error = march.attempt(march.rest, 0.0, circuit.T)
    x_c, J, total = march.ended(rows)
    F = total + np.eye(basis.slots)[basis.total_slot or 0]
    made = leap(basis, circuit, FactorCache(pivot))
    for found, expected in ((made.x_c, x_c), (made.J, J.rows), (made.F, F)):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(made.norms, basis.norms(J, x_c, F / circuit.C), rtol=1e-10)
    assert made.error == pytest.approx(error, rel=1e-10)


def test_the_pivot_is_kept_whoever_comes_first() -> None:
    basis, circuit = a_round(3, 10, 0)
    pivots = FactorCache(pivot)
    leap(basis, circuit, pivots)
    leap(basis, circuit, pivots)
    turned, G = FactorCache(pivot), circuit.G.tolist()
    assert (pivots.hits, pivots.misses) == (1, 1)
    for order in (G, G[::-1]):
        turned.get(circuit.T, circuit.L, circuit.C, tuple(sorted(order)))
    assert (turned.hits, turned.misses) == (1, 1)


@pytest.mark.parametrize(
    ("tolerance", "max_level", "counts"), [(math.inf, 12, (1, 0, 0)), (1e-9, 0, (1, 0, 1)), (0.4, 12, None)]
)
def test_a_leap_counts_as_a_step(
    tolerance: float, max_level: int, counts: tuple[int, int, int] | None
) -> None:
    """Taken, taken for want of shorter ones, or refused, and then others go on from the start."""
    basis, circuit = a_round(3, 30, 1)
    options = Options(tolerance=min(tolerance, 1e300), max_level=max_level)
    solver = Reduced(options)
    steps = solver.solve(basis, [None] * 3, circuit).steps
    assert sum(solver.reuse) == steps.accepted + steps.rejected
    if counts is None:
        assert steps.rejected and steps.accepted > 1
    else:
        assert (steps.accepted, steps.rejected, steps.floored) == counts


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_leap_out_of_range_is_told(value: float) -> None:
    basis, circuit = a_round(2, 10, 0)
    assert basis.gram is not None
    basis.gram[1, 1] = value
    with pytest.raises(NonFiniteError, match="left floating-point range"):
        Reduced(Options(tolerance=1e300)).solve(basis, [None, None], circuit)
