"""Sums of more vectors than are held at once, in blocks of any width."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from fedecado.server.numerics.tally import ROWS, Tally

Floats = npt.NDArray[np.float64]
WIDTH = 40


def total(tally: Tally, vectors: npt.NDArray[np.float32], signs: Sequence[float]) -> Floats:
    out = np.full(len(vectors[0]), np.nan)
    for vector, sign in zip(vectors, signs, strict=True):
        if not tally.room(1):
            tally.total(out)
            tally.add(out)
        tally.add(vector, sign)
    tally.total(out)
    return out


@pytest.mark.parametrize("count", [1, 2, ROWS, ROWS + 1, 5 * ROWS])
@pytest.mark.parametrize("width", [1, 17, WIDTH])
def test_a_sum_is_as_exact_as_stated(count: int, width: int) -> None:
    """With values of very different magnitude; what was added up before leaves nothing behind."""
    draw, tally = np.random.default_rng(count), Tally(WIDTH)
    for _ in range(2):
        exponents = 10.0 ** draw.integers(-6, 6, (count, width))
        vectors = (draw.standard_normal((count, width)) * exponents).astype(np.float32)
        signs = draw.choice([-1.0, 1.0], count)
        found = total(tally, vectors, signs.tolist())
        for column in range(width):
            values = (signs * vectors[:, column]).tolist()
            bound = (count + 1) * 2.0**-53 * math.fsum(map(abs, values))
            assert abs(found[column] - math.fsum(values)) <= bound


def test_a_vector_may_change_once_it_was_added() -> None:
    tally, vector, out = Tally(2), np.array([1, 2], np.float32), np.empty(2)
    tally.add(vector, -1.0)
    vector += 5
    tally.add(vector)
    tally.total(out)
    np.testing.assert_array_equal(out, [5, 5])


def test_room_is_for_so_many() -> None:
    tally = Tally(1)
    assert tally.room(ROWS) and not tally.room(ROWS + 1)
    tally.add(np.ones(1, np.float32))
    assert tally.room(ROWS - 1) and not tally.room(ROWS)
    tally.total(np.empty(1))
    assert tally.room(ROWS)
