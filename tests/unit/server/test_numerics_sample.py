"""Norms of long rows from a sample of their coordinates; results from all of them."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedecado.server.numerics import sample
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.columns import STRIPE
from fedecado.server.numerics.robust import Pulls, Robust, guard

SIZE = (1 << 20) + STRIPE // 2 + 5


def heavy_tailed(rows: int, seed: int) -> npt.NDArray[Any]:
    """Layers of different scales, and entries of which few are large."""
    draw = np.random.default_rng(seed)
    layers = np.repeat(draw.lognormal(0, 1, 64), -(-SIZE // 64))[:SIZE]
    return (draw.standard_normal((rows, SIZE)) * draw.lognormal(0, 1, (rows, SIZE)) * layers).astype(
        np.float32
    )


@pytest.fixture(scope="module")
def rows() -> npt.NDArray[Any]:
    return heavy_tailed(4, seed=1)


@pytest.fixture(scope="module")
def basis(rows: npt.NDArray[Any]) -> Basis:
    return made_of(rows)


def made_of(rows: npt.NDArray[Any]) -> Basis:
    made = Basis(SIZE, np.float32, gram=True)
    made.set_total(rows[0])
    for row in rows[1:]:
        made.append(row, np.zeros_like(row))
    return made


def test_norms_are_within_five_of_the_stated_standard_errors(basis: Basis, rows: npt.NDArray[Any]) -> None:
    weights = np.random.default_rng(2).standard_normal((6, len(rows)))
    weights[0] = [1, -1, 1, -1]
    found = basis.rms(weights)
    for combination, rms in zip(weights @ rows.astype(np.float64), found, strict=True):
        mean = np.square(combination).mean()
        kurtosis = np.power(combination, 4).mean() / mean**2
        error = np.sqrt((kurtosis - 1) * (1 - 1 / sample.group(SIZE)) / sample.width(SIZE))
        assert abs(rms**2 / mean - 1) <= 5 * error
        assert error < 0.1, "the rows were meant to be a case that can be told from a wrong scale"


def test_no_combination_is_longer_than_its_bound(basis: Basis, rows: npt.NDArray[Any]) -> None:
    weights = np.random.default_rng(3).standard_normal((6, len(rows)))
    lengths = np.linalg.norm(weights @ rows.astype(np.float64), axis=1)
    bounds = basis.bound(weights)
    assert (lengths <= bounds * (1 + 1e-6)).all()
    assert (bounds <= 2.1 * lengths.max() * len(rows)).all()


def test_results_are_formed_from_all_coordinates(basis: Basis, rows: npt.NDArray[Any]) -> None:
    weights = np.array([0.5, -1.0, 2.0, 0.25])
    exact = weights @ rows.astype(np.float64)
    np.testing.assert_allclose(basis.combine(weights), exact, rtol=0, atol=1e-5 * np.abs(rows).max())
    np.testing.assert_allclose(basis.squares(), np.square(rows[1:].astype(np.float64)).sum(1), rtol=1e-5)


def test_one_coordinate_of_every_group_is_drawn_and_always_the_same() -> None:
    positions = np.arange(SIZE, dtype=np.float64)
    drawn = np.full(sample.width(SIZE), -1.0)
    for start in range(0, SIZE, STRIPE):
        stripe = slice(start, min(start + STRIPE, SIZE))
        drawn[sample.place(SIZE, stripe)] = sample.drawn(positions, stripe)
    np.testing.assert_array_equal(drawn // 8, np.arange(len(drawn)))
    assert len(np.unique(drawn % 8)) == 8, "not every eighth one: layers have periods"
    sample.picked.cache_clear()
    np.testing.assert_array_equal(sample.drawn(positions, slice(0, SIZE)), drawn)


def test_rows_that_are_not_long_are_taken_in_full() -> None:
    assert sample.width(sample.LONG - 1) == 0
    assert sample.width(sample.LONG) == sample.LONG // 2


@pytest.mark.parametrize(
    ("size", "group"),
    [
        *((1 << 18, 2), ((1 << 19) - 1, 2), (1 << 19, 4), (1_000_000, 4), (1 << 20, 8), ((1 << 21) - 1, 8)),
        *((1 << 21, 8), (5_000_000, 16), (9_200_000, 32), (10**9, 2048)),
    ],
)
def test_samples_are_large_enough_for_their_stated_error_and_stripes_begin_with_a_group(
    size: int, group: int
) -> None:
    assert sample.group(size) == group
    assert sample.LEAST <= sample.width(size) <= 2 * sample.ENOUGH
    assert size < 1 << 21 or sample.width(size) >= sample.ENOUGH
    assert STRIPE % group == 0


@pytest.mark.parametrize("robust", [Robust(trim=0.3), Robust(norm_bound=1.01)])
def test_a_guarded_basis_is_one_of_the_guarded_rows(robust: Robust) -> None:
    long = heavy_tailed(6, seed=4)
    long[2] *= 30
    guarded = made_of(long)
    guard(guarded, Pulls(np.ones(5), [None] * 5), robust)
    assert not np.array_equal(guarded.rows[1:], long[1:])
    fresh = made_of(guarded.rows.copy())
    assert guarded.gram is not None
    assert fresh.gram is not None
    np.testing.assert_allclose(guarded.gram, fresh.gram, rtol=1e-4, atol=1e-6 * np.abs(fresh.gram).max())
    np.testing.assert_allclose(guarded.squares(), fresh.squares(), rtol=1e-5)
