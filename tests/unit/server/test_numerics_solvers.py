"""The solver in reduced coordinates against the one on full vectors."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedecado.common.errors import NonFiniteError
from fedecado.server.numerics import columns, direct, spread, whole
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.circuit import Circuit
from fedecado.server.numerics.columns import BLOCK
from fedecado.server.numerics.direct import Problem
from fedecado.server.numerics.options import Options
from fedecado.server.numerics.reduced import Reduced, Solution

Array = npt.NDArray[Any]


class Round:
    """A random round: `older` of its `a` clients started from one of two earlier versions."""

    def __init__(self, a: int, d: int, dtype: npt.DTypeLike, *, older: int = 0, seed: int = 0) -> None:
        draw = np.random.default_rng((seed, a, d, older))
        self.absent = 7

        def vectors(count: int, scale: float = 1.0) -> Array:
            return (scale * draw.standard_normal((count, d))).astype(dtype)

        self.x_c, self.flows, self.S = vectors(1)[0], vectors(a), vectors(1, 2.0)[0]
        olds = self.x_c + vectors(2, 0.3)
        self.versions: list[int | None] = [i % 2 if i < older else None for i in range(a)]
        self.starts = np.stack([self.x_c if v is None else olds[v] for v in self.versions])
        self.ends = self.starts + vectors(a, 0.5)
        self.times = draw.uniform(0.02, 0.3, a)
        self.curvatures, self.weights = draw.uniform(0, 3, a), draw.lognormal(0, 0.5, a)

    def circuit(self, options: Options) -> Circuit:
        n = len(self.times) + self.absent
        return Circuit.build(self.times, self.curvatures, self.weights, n, options)

    def direct(self, options: Options, level: int = 0) -> tuple[Array, Array, Any]:
        S = self.S if options.absent == "held" else np.zeros_like(self.S)
        moves = self.ends - self.starts  # rounded to the model's dtype, as the basis holds them
        problem = Problem(self.x_c, S, self.flows, self.starts, moves)
        return direct.solve(problem, self.circuit(options), options, level)

    def total(self) -> Array:
        return np.asarray(self.S + self.flows.sum(0, dtype=np.float64))

    def reduced(self, options: Options, level: int = 0) -> Solution:
        basis = Basis(len(self.x_c), self.x_c.dtype, gram=True)
        held = options.absent == "held"
        basis.set_total(self.total() if held else self.flows.sum(0, dtype=np.float64))
        for end, start, version in zip(self.ends, self.starts, self.versions, strict=True):
            basis.append(end, start, older=None if version is None else (version, self.x_c))
        return Reduced(options).solve(basis, self.versions, self.circuit(options), level)


def assert_agree(case: Round, options: Options, tolerance: float, level: int = 0) -> None:
    """Relative to the largest vector that takes part: sums of rows cannot round better than that."""
    x_c, flows, steps = case.direct(options, level)
    solution = case.reduced(options, level)
    found_x = solution.central(case.x_c)
    found, F = solution.flows([*case.flows.copy()], case.total())
    found_flows = np.stack(found)
    scale = max(np.linalg.norm(row) for row in (*flows, *case.flows))
    assert np.linalg.norm(found_x - x_c) <= tolerance * np.linalg.norm(x_c)
    assert np.linalg.norm(found_flows - flows, axis=1).max() <= tolerance * scale
    assert replace(solution.steps, error=0.0) == replace(steps, error=0.0)
    exact = case.S + found_flows.sum(0, dtype=np.float64)
    np.testing.assert_allclose(F, exact, rtol=0, atol=1e-13 * (np.abs(exact).max() + scale))
    assert solution.steps.error == pytest.approx(steps.error, rel=max(1e-9, 100 * tolerance))


VARIANTS = {
    "defaults": Options(tolerance=0.01),
    "maximum norm": Options(tolerance=0.02, norm="max"),
    "common window": Options(tolerance=0.01, window="common", rho=1.8),
    "absent ignored": Options(tolerance=0.01, absent="ignored"),
    "fixed inductance": Options(tolerance=0.003, inductance=0.05),
    "no bound": Options(tolerance=0.01, rho=math.inf, reach="fixed"),
    "one step": Options(tolerance=1e6),
    "published": Options.paper(inductance=0.1),
}


@pytest.fixture(params=["few clients", "many clients"])
def march(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to take the steps, whatever the number of clients."""
    monkeypatch.setattr(whole, "MOST", 10**9 if request.param == "few clients" else 0)


@pytest.mark.usefixtures("march")
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-6)])
@pytest.mark.parametrize(("a", "older"), [(1, 0), (2, 2), (5, 0), (9, 4)])
def test_both_solvers_agree_and_take_the_same_steps(
    name: str, dtype: npt.DTypeLike, tolerance: float, a: int, older: int
) -> None:
    assert_agree(Round(a, 40, dtype, older=older), VARIANTS[name], tolerance)


@pytest.mark.usefixtures("march")
@pytest.mark.parametrize("norm", ["rms", "max"])
@pytest.mark.parametrize("stripe", [BLOCK, 8 * BLOCK])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-6)])
def test_both_solvers_agree_over_several_blocks(
    norm: Any, stripe: int, dtype: npt.DTypeLike, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "STRIPE", stripe)
    case = Round(3, BLOCK + 17, dtype, older=1)
    assert_agree(case, Options(tolerance=0.02 if norm == "rms" else 0.1, norm=norm), tolerance)


@pytest.mark.parametrize("factor", [0, 10**9])
@pytest.mark.parametrize("level", [0, 2, 7])
@pytest.mark.parametrize(
    ("size", "tolerance", "dtype"), [(40, 1e-12, np.float64), (BLOCK + 17, 1e-6, np.float32)]
)
def test_both_solvers_agree_whether_rows_are_written_out_or_not(
    size: int,
    tolerance: float,
    dtype: npt.DTypeLike,
    level: int,
    factor: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whole, "MOST", 0)
    monkeypatch.setattr(spread, "FEW", factor)
    assert_agree(Round(5, size, dtype, older=3), Options(tolerance=0.02), tolerance, level)


@pytest.mark.usefixtures("march")
@pytest.mark.parametrize("level", [1, 4, 7])
def test_both_solvers_agree_from_any_first_step(level: int) -> None:
    assert_agree(Round(3, 20, np.float64, older=1), Options(tolerance=0.01), 1e-12, level)


@pytest.mark.usefixtures("march")
@pytest.mark.parametrize("seed", range(5))
def test_permuting_clients_permutes_the_result(seed: int) -> None:
    case, options = Round(6, 30, np.float64, older=3, seed=seed), Options(tolerance=0.01)
    shuffle = np.random.default_rng(seed).permutation(6)
    x_c, flows, steps = case.direct(options)
    solution = case.reduced(options)
    expected = solution.central(case.x_c), np.stack(solution.flows([*case.flows.copy()], case.total())[0])
    case.versions = [case.versions[i] for i in shuffle]
    for name in ("flows", "starts", "ends", "times", "curvatures", "weights"):
        setattr(case, name, getattr(case, name)[shuffle])
    shuffled_x, shuffled_flows, shuffled_steps = case.direct(options)
    np.testing.assert_allclose(shuffled_x, x_c, rtol=1e-12)
    np.testing.assert_allclose(shuffled_flows, flows[shuffle], rtol=1e-10, atol=1e-12)
    assert shuffled_steps.accepted == steps.accepted
    again = case.reduced(options)
    np.testing.assert_allclose(again.central(case.x_c), expected[0], rtol=1e-12)
    again_flows, _ = again.flows([*case.flows.copy()], case.total())
    np.testing.assert_allclose(again_flows, expected[1][shuffle], rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("march")
def test_the_rate_is_that_of_the_centre_at_the_end_of_the_window() -> None:
    case, options = Round(4, 25, np.float64), Options(tolerance=0.01)
    _, flows, _ = case.direct(options)
    slope = (flows.sum(0) + case.S) / case.circuit(options).C
    np.testing.assert_allclose(case.reduced(options).rate, np.sqrt(np.mean(slope**2)), rtol=1e-10)


@pytest.mark.usefixtures("march")
def test_factors_are_kept_between_rounds() -> None:
    case, options = Round(3, 10, np.float64), Options(tolerance=0.01)
    basis = case.reduced(options).basis
    solver = Reduced(options)
    solver.solve(basis, case.versions, case.circuit(options))
    hits, misses = solver.reuse
    solver.solve(basis, case.versions, case.circuit(options))
    assert misses > 1
    assert solver.reuse == (2 * hits + misses, misses)


def test_results_too_large_for_a_later_round_are_refused() -> None:
    """Flows at the start count too: the new ones are those plus the change."""
    case, options = Round(3, 10, np.float32), Options(tolerance=1e30)
    case.reduced(options).require_room(np.array([0.0, 3e38, 1.0]))
    with pytest.raises(NonFiniteError, match=r"range of float32.*state is unchanged"):
        case.reduced(options).require_room(np.array([0.0, 4e38, 1.0]))
    case.ends[1] *= np.float32(5e18)
    with pytest.raises(NonFiniteError, match=r"range of float32.*state is unchanged"):
        case.reduced(options).require_room(np.zeros(3))


@pytest.mark.parametrize("absent", ["held", "ignored"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_solvers_agree_where_there_are_more_clients_than_parameters(
    dtype: npt.DTypeLike, tolerance: float, absent: Any
) -> None:
    case = Round(12, 3, dtype, older=5)
    assert_agree(case, Options(absent=absent), tolerance)
