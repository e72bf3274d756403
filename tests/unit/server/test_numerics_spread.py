"""Rows that differ in little: what is computed of them is that of the same rows written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.server.numerics.circuit import Floats
from fedecado.server.numerics.spread import SPARE, Own, Spread


def make(seed: int, clients: int, late: int, steps: int) -> tuple[Spread, Floats]:
    """A spread whose late clients share two offsets, and its rows added up term by term."""
    draw, late = np.random.default_rng(seed), min(late, clients)
    slots = 1 + clients + 2
    own = Own(np.arange(1, clients + 1), np.arange(late), slots - 2 + np.arange(late) % 2)
    spread = Spread(own, draw.standard_normal((2 + steps, clients)), draw.standard_normal((steps, slots)))
    rows = np.zeros((clients, slots))
    for i in range(clients):
        rows[i, own.moves[i]] += spread.terms[1, i]
        if i < late:
            rows[i, own.offsets[i]] += spread.terms[0, i]
        for k in range(steps):
            rows[i] += spread.terms[2 + k, i] * spread.shared[k]
    return spread, rows


spreads = given(st.integers(0, 10**6), st.integers(1, 8), st.integers(0, 8), st.integers(0, 5))


@spreads
def test_the_rows_and_their_sum_are_those_of_the_terms(
    seed: int, clients: int, late: int, steps: int
) -> None:
    spread, rows = make(seed, clients, late, steps)
    np.testing.assert_allclose(spread.dense(), rows, rtol=0, atol=1e-13)
    np.testing.assert_allclose(spread.total(), rows.sum(0), rtol=0, atol=1e-12)


@spreads
def test_lengths_are_those_of_the_combinations(seed: int, clients: int, late: int, steps: int) -> None:
    spread, rows = make(seed, clients, late, steps)
    vectors = np.random.default_rng(seed + 1).standard_normal((rows.shape[1], 30))
    expected = np.square(rows @ vectors).sum(1)
    found = spread.squares(vectors @ vectors.T)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * expected.max())


@pytest.mark.parametrize("late", [0, 3])
def test_many_steps_do_not_make_it_longer_and_the_last_row_stays(late: int) -> None:
    for steps in (1, 2 * 8 + SPARE, 2 * 8 + SPARE + 1, 100):
        spread, rows = make(0, 5, late, steps)
        compact = spread.compact()
        assert len(compact.shared) <= 2 * 8 + SPARE
        np.testing.assert_allclose(compact.dense(), rows, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(compact.shared[-1], spread.shared[-1])
