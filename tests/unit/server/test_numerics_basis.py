"""The basis of long vectors: its Gram matrix, its combinations, and what a failed row leaves behind."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedecado.common.errors import LayoutError, NonFiniteError
from fedecado.server.numerics import basis as module
from fedecado.server.numerics.basis import BLOCK, Basis

Rows = npt.NDArray[Any]


def filled(
    clients: int, size: int, dtype: npt.DTypeLike = np.float64, *, older: int = 0, seed: int = 0
) -> tuple[Basis, Rows]:
    """A basis, and its rows by slot formed independently; the first `older` clients start elsewhere."""
    draw = np.random.default_rng(seed)

    def vector() -> Rows:
        return draw.standard_normal(size).astype(dtype)

    F, x_c, rows = vector(), vector(), []
    basis = Basis(size, dtype, gram=True)
    basis.set_total(F)
    rows.append(F)
    for i in range(clients):
        start, end, flow = vector() if i < older else x_c, vector(), vector()
        basis.append(end, start, flow, older=(i, x_c) if i < older else None)
        rows += [start - x_c] if i < older else []
        rows += [end - start, flow]
    return basis, np.stack(rows)


@pytest.mark.parametrize("size", [1, 7, BLOCK, 2 * BLOCK + 3])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-14), (np.float32, 1e-6)])
def test_the_gram_matrix_grown_row_by_row_is_that_of_all_rows_at_once(
    size: int, dtype: npt.DTypeLike, tolerance: float
) -> None:
    basis, rows = filled(4, size, dtype, older=2)
    exact = rows.astype(np.float64) @ rows.astype(np.float64).T
    assert basis.gram is not None and basis.gram.dtype == np.float64
    assert basis.gram.shape == (1 + 2 * 4 + 2,) * 2
    lengths = np.sqrt(exact.diagonal())
    assert (np.abs(basis.gram - exact) <= tolerance * np.outer(lengths, lengths) * 4).all()


@given(seed=st.integers(0, 1000), size=st.integers(1, 40), clients=st.integers(1, 6))
@settings(max_examples=30)
def test_combinations_and_norms_are_those_of_the_rows(seed: int, size: int, clients: int) -> None:
    basis, rows = filled(clients, size, older=clients // 2, seed=seed)
    weights = np.random.default_rng(seed + 1).standard_normal((3, basis.slots))
    expected = weights @ rows
    scale = np.abs(expected).max() + np.abs(weights) @ np.abs(rows).max(1)
    np.testing.assert_allclose(basis.combine(weights[0]), expected[0], rtol=0, atol=1e-13 * scale.max())
    blocks = np.concatenate([block.copy() for _, block in basis.combine_blocks(weights)], axis=1)
    np.testing.assert_allclose(blocks, expected, rtol=0, atol=1e-13 * scale.max())
    np.testing.assert_allclose(basis.peak(weights), np.abs(expected).max(1), rtol=1e-10, atol=1e-12)
    # The square root turns a cancellation of 1e-16 in the Gram matrix into 1e-8 of the longest row.
    rms = np.sqrt(np.square(expected).mean(1))
    np.testing.assert_allclose(basis.rms(weights), rms, rtol=1e-6, atol=1e-7 * scale.max())


def test_blocks_cover_every_column_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 8)
    basis, rows = filled(3, 21, older=1)
    weights = np.random.default_rng(1).standard_normal((2, basis.slots))
    covered = [range(*columns.indices(21)) for columns, _ in basis.combine_blocks(weights)]
    assert [list(c) for c in covered] == [list(range(8)), list(range(8, 16)), list(range(16, 21))]
    assert basis.gram is not None
    np.testing.assert_allclose(basis.gram, rows @ rows.T, rtol=1e-12, atol=1e-12)


def test_replacing_flows_moves_their_sum_by_what_was_really_written() -> None:
    basis, rows = filled(3, 500, np.float32)
    flows = rows[basis.flow_slots].astype(np.float64)
    F = flows.sum(0)
    weights = np.random.default_rng(2).standard_normal((3, basis.slots))
    written = basis.replace_flows(weights, F)
    np.testing.assert_allclose(written, weights @ rows, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(F, written.sum(0, dtype=np.float64), rtol=1e-13, atol=1e-13)


def test_squares_are_kept_from_the_check_of_each_displacement() -> None:
    basis = Basis(3, np.float32)
    basis.append(np.array([3, 4, 0], np.float32), np.zeros(3, np.float32))
    basis.append(np.array([1, 1, 1], np.float32), np.zeros(3, np.float32))
    np.testing.assert_array_equal(basis.squares(), [25.0, 3.0])
    assert basis.gram is None


def test_an_offset_is_held_once_per_version() -> None:
    basis, x_c, old = Basis(2, np.float64, gram=True), np.zeros(2), np.ones(2)
    for _ in range(3):
        basis.append(np.full(2, 5.0), old, np.zeros(2), older=(7, x_c))
    assert basis.slots == 3 + 3 + 1
    selected = np.zeros(basis.slots)
    selected[basis.offset_slot(7)] = 1
    np.testing.assert_array_equal(basis.combine(selected), old - x_c)


HUGE = np.float32(1e30)


@pytest.mark.parametrize("where", ["end", "flow", "start"])
@pytest.mark.parametrize("value", [np.nan, np.inf, HUGE])
@pytest.mark.parametrize("gram", [True, False])
def test_rows_that_cannot_be_used_leave_no_trace(where: str, value: float, gram: bool) -> None:
    """Displacement, flow and offset of a failed update go together, and so does its version."""
    size, x_c = 5, np.zeros(5, np.float32)
    good: dict[str, Any] = {"end": np.ones(size, np.float32), "start": x_c, "flow": x_c + 2}
    basis = Basis(size, np.float32, gram=gram)
    if gram:
        basis.set_total(np.ones(size))
    else:
        del good["flow"]
    basis.append(**good)
    before = (basis.slots, basis.squares().copy(), None if basis.gram is None else basis.gram.copy())
    bad = {name: vector.copy() for name, vector in good.items()}
    bad.setdefault(where, x_c.copy())[3] = value
    with pytest.raises(NonFiniteError, match="3" if not np.isfinite(value) else "1e\\+30.*float32"):
        basis.append(**bad, older=(9, x_c))
    assert basis.slots == before[0]
    np.testing.assert_array_equal(basis.squares(), before[1])
    np.testing.assert_array_equal(basis.gram, before[2])
    with pytest.raises(KeyError):
        basis.offset_slot(9)
    basis.append(**good)
    assert basis.slots == before[0] + len(good) - 1


@pytest.mark.parametrize("where", ["end", "start", "flow"])
def test_a_vector_of_another_length_is_refused(where: str) -> None:
    vectors: dict[str, Any] = {"end": np.ones(4), "start": np.ones(4), "flow": np.ones(4), where: np.ones(3)}
    basis = Basis(4, np.float64, gram=True)
    with pytest.raises(LayoutError, match="the model has 4 parameters"):
        basis.append(**vectors)
    assert basis.slots == 0


def test_results_too_large_for_a_later_round_are_refused() -> None:
    basis = Basis(4, np.float32, gram=True)
    basis.set_total(np.full(4, 1e10))
    basis.require_room(np.array([[1e8]]))
    with pytest.raises(NonFiniteError, match=r"range of float32.*state is unchanged"):
        basis.require_room(np.array([[1.0], [1e12]]))
