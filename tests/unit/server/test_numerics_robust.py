"""Rules against bad clients: what k of them send lies between what the others sent, and zero stays zero."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.common.errors import ConfigError
from fedecado.common.layout import Vector
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.robust import Pulls, Robust, draw_in, guard

WILD = st.floats(-(2.0**50), 2.0**50, width=32)


def basis_of(rows: Vector, *, gram: bool = True) -> Basis:
    basis = Basis(rows.shape[1], rows.dtype, gram=gram)
    basis.set_total(np.ones(rows.shape[1]))
    for row in rows:
        basis.append(row, np.zeros_like(row))
    return basis


def plain(clients: int) -> Pulls:
    return Pulls(np.ones(clients), [None] * clients)


def moves(basis: Basis) -> Vector:
    return np.asarray(basis.rows[basis.move_slots])


def rows(clients: int = 7, size: int = 50, seed: int = 0) -> Vector:
    return np.random.default_rng(seed).standard_normal((clients, size))


@given(clients=st.integers(1, 12), share=st.floats(0, 0.49), seed=st.integers(0, 100))
def test_drawing_in_clamps_to_sorted_order_statistics(clients: int, share: float, seed: int) -> None:
    sent = rows(clients, 20, seed)
    k = Robust(trim=share).trimmed(clients)
    ordered = np.sort(sent, axis=0)
    expected = np.clip(sent, ordered[k], ordered[clients - 1 - k])
    drawn = sent.copy()
    outside = draw_in(drawn, k)
    np.testing.assert_array_equal(drawn, expected)
    np.testing.assert_array_equal(outside, drawn != sent)


def test_many_clients_are_sorted_and_few_compared_to_the_same_end() -> None:
    sent = rows(60, 40)
    drawn = sent.copy()
    draw_in(drawn, 25)
    ordered = np.sort(sent, axis=0)
    np.testing.assert_array_equal(drawn, np.clip(sent, ordered[25], ordered[34]))


@given(bad=st.lists(WILD, min_size=2, max_size=2), seed=st.integers(0, 50))
def test_whatever_two_of_ten_send_lies_between_values_of_the_others(bad: list[float], seed: int) -> None:
    sent = rows(10, 30, seed).astype(np.float32)
    sent[:2] = np.asarray(bad, np.float32)[:, None]
    basis = basis_of(sent)
    guard(basis, plain(10), Robust(trim=0.2))
    assert (moves(basis) >= sent[2:].min(0)).all()
    assert (moves(basis) <= sent[2:].max(0)).all()


@given(bad=st.lists(WILD, min_size=2, max_size=2))
def test_where_the_others_rest_everyone_rests(bad: list[float]) -> None:
    sent = np.zeros((10, 5))
    sent[3:5] = np.asarray(bad)[:, None]
    basis = basis_of(sent)
    guard(basis, plain(10), Robust(trim=0.2))
    assert not moves(basis).any()


@given(factor=st.floats(3, 1e12), seed=st.integers(0, 20))
def test_a_scaled_update_keeps_its_direction_and_no_more_than_the_bound(factor: float, seed: int) -> None:
    sent = rows(9, 40, seed)
    sent[4] *= factor
    basis = basis_of(sent)
    guard(basis, plain(9), Robust(norm_bound=2.0))
    lengths = np.linalg.norm(moves(basis), axis=1)
    median = np.median(np.linalg.norm(sent, axis=1))
    assert lengths.max() <= 2 * median * (1 + 1e-12)
    np.testing.assert_allclose(moves(basis)[4] / lengths[4], sent[4] / np.linalg.norm(sent[4]), rtol=1e-9)
    np.testing.assert_array_equal(np.delete(moves(basis), 4, 0), np.delete(sent, 4, 0))


@pytest.mark.parametrize("robust", [Robust(norm_bound=1.1), Robust(trim=0.3), Robust(1.1, "clip", 0.3)])
@pytest.mark.parametrize("gram", [True, False])
def test_inner_products_follow_what_is_changed(robust: Robust, gram: bool) -> None:
    sent = rows()
    sent[2] *= 30
    basis = basis_of(sent, gram=gram)
    guard(basis, Pulls(np.linspace(1, 1.2, 7), [None, np.ones(50), *[None] * 5]), robust)
    np.testing.assert_allclose(basis.squares(), np.square(moves(basis)).sum(1))
    if gram:
        assert basis.gram is not None
        np.testing.assert_allclose(basis.gram, basis.rows @ basis.rows.T, atol=1e-10)


def test_lengths_are_compared_on_the_common_timescale() -> None:
    sent = np.ones((5, 4))
    basis = basis_of(sent)
    guard(basis, Pulls(np.array([1.0, 1.0, 1.0, 1.0, 10.0]), [None] * 5), Robust(norm_bound=2.0))
    np.testing.assert_allclose(moves(basis)[4], 0.2)


@pytest.mark.parametrize("robust", [Robust(norm_bound=2.0), Robust(trim=0.2)])
def test_what_the_centre_made_a_client_move_by_is_not_held_against_it(robust: Robust) -> None:
    sent, flow = np.ones((5, 4)), np.full(4, 1000.0)
    sent[0] += 0.1 * flow
    basis = basis_of(sent)
    guard(basis, Pulls(np.full(5, 10.0), [flow, *[None] * 4]), robust)
    np.testing.assert_allclose(moves(basis), sent)


def test_accepting_counts_and_changes_nothing() -> None:
    sent = rows()
    sent[2] *= 30
    basis = basis_of(sent)
    judged = guard(basis, plain(7), Robust(norm_bound=3.0, beyond="accept"))
    assert judged.beyond == 1
    np.testing.assert_array_equal(moves(basis), sent)


def test_a_median_of_zero_shortens_to_zero() -> None:
    sent = np.zeros((5, 4))
    sent[0] = 7.0
    basis = basis_of(sent)
    assert guard(basis, plain(5), Robust(norm_bound=2.0)).median == 0
    assert not moves(basis).any()


@pytest.mark.parametrize(
    "knobs",
    [{"norm_bound": 0.5}, {"norm_bound": float("nan")}, {"trim": 0.5}, {"trim": -0.1}, {"beyond": "x"}],
)
def test_nonsense_is_refused(knobs: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Robust(**knobs)  # type: ignore[arg-type]  # on purpose


def test_a_share_means_whole_clients_and_never_half_of_them() -> None:
    robust = Robust(trim=0.1)
    assert [robust.trimmed(a) for a in (1, 2, 3, 10, 11, 30)] == [0, 0, 1, 1, 2, 3]
