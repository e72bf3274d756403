"""The basis of long vectors: its Gram matrix, its combinations, and what a failed row leaves behind."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedecado.common.errors import LayoutError, NonFiniteError
from fedecado.server.numerics import columns, native, rows, sample
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.columns import BLOCK, STRIPE
from fedecado.server.numerics.finite import squared_length
from fedecado.server.numerics.spread import Own, Spread
from fedecado.server.numerics.workspace import LONG, Workspace

Rows = npt.NDArray[Any]

LONG_ROW = sample.LONG
"""Parameters from which on rows are not written down here."""


@pytest.fixture(autouse=True, params=["compiled", "numpy"])
def shorter(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Long rows are not so long here. Where nothing was compiled both are numpy."""
    monkeypatch.setattr(rows, "FORMED_BYTES", 4 * LONG_ROW)
    if request.param == "numpy":
        monkeypatch.setattr(native, "kernels", lambda: None)


def plain(rows: Rows) -> Spread:
    """Any rows of coefficients: what they share is all slots."""
    none = np.empty(0, np.intp)
    terms = np.vstack([np.zeros((2, len(rows))), rows.T])
    return Spread(Own(np.zeros(len(rows), np.intp), none, none), terms, np.eye(rows.shape[1]))


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
        start, end = vector() if i < older else x_c, vector()
        basis.append(end, start, older=(i, x_c) if i < older else None)
        rows += [start - x_c] if i < older else []
        rows.append(end - start)
    return basis, np.stack(rows)


@pytest.mark.parametrize("size", [1, 7, BLOCK, LONG_ROW - 1])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-14), (np.float32, 1e-6)])
def test_the_gram_matrix_grown_row_by_row_is_that_of_all_rows_at_once(
    size: int, dtype: npt.DTypeLike, tolerance: float
) -> None:
    basis, rows = filled(4, size, dtype, older=2)
    exact = rows.astype(np.float64) @ rows.astype(np.float64).T
    assert basis.gram is not None and basis.gram.dtype == np.float64
    assert basis.gram.shape == (1 + 4 + 2,) * 2
    np.testing.assert_array_equal(basis.gram, basis.gram.T)
    lengths = np.sqrt(exact.diagonal())
    assert (np.abs(basis.gram - exact) <= tolerance * np.outer(lengths, lengths) * 4).all()


@pytest.mark.parametrize("clients", [1, 3, 4, 17, 300])
@pytest.mark.parametrize("asked", [1, 7, 1000])
def test_every_row_has_its_products_whenever_they_are_asked_for(clients: int, asked: int) -> None:
    rows: Rows = np.random.default_rng(clients).standard_normal((clients, 50))
    basis = Basis(50, np.float64, gram=True)
    for i, row in enumerate(rows, 1):
        basis.append(row, np.zeros(50))
        if i % asked == 0:
            np.testing.assert_allclose(np.asarray(basis.gram), rows[:i] @ rows[:i].T, rtol=0, atol=1e-12)
    assert basis.gram is not None
    np.testing.assert_allclose(basis.gram, rows @ rows.T, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(basis.gram, basis.gram.T)


@given(seed=st.integers(0, 1000), size=st.integers(1, 40), clients=st.integers(1, 6))
@settings(max_examples=30)
def test_combinations_and_norms_are_those_of_the_rows(seed: int, size: int, clients: int) -> None:
    basis, rows = filled(clients, size, older=clients // 2, seed=seed)
    weights = np.random.default_rng(seed + 1).standard_normal((3, basis.slots))
    expected = weights @ rows
    scale = np.abs(expected).max() + np.abs(weights) @ np.abs(rows).max(1)
    np.testing.assert_allclose(basis.combine(weights[0]), expected[0], rtol=0, atol=1e-13 * scale.max())
    onto = np.random.default_rng(seed + 2).standard_normal(size)
    np.testing.assert_allclose(
        basis.combine(weights[1], onto), onto + expected[1], rtol=0, atol=1e-13 * scale.max() + 1e-15
    )
    np.testing.assert_allclose(basis.peak(weights), np.abs(expected).max(1), rtol=1e-10, atol=1e-12)
    # The square root turns a cancellation of 1e-16 in the Gram matrix into 1e-8 of the longest row.
    rms = np.sqrt(np.square(expected).mean(1))
    np.testing.assert_allclose(basis.rms(weights), rms, rtol=1e-6, atol=1e-7 * scale.max())


@pytest.mark.parametrize("size", [5, STRIPE + 5])
def test_a_single_row_is_weighted_like_several(size: int) -> None:
    start, end, onto = np.random.default_rng(0).standard_normal((3, size)).astype(np.float32)
    basis = Basis(size, np.float32, capacity=1)
    basis.append(end, start)
    expected = np.float32(0.3) * (end - start)
    np.testing.assert_array_equal(basis.combine(np.array([0.3])), expected)
    np.testing.assert_array_equal(basis.combine(np.array([0.3]), onto), expected + onto)


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stripes are the same and their sums are taken in order, so every bit is."""

    def everything() -> list[bytes]:
        basis, _ = filled(3, 2 * BLOCK + 3, np.float32, older=1)
        weights = np.random.default_rng(1).standard_normal((3, basis.slots))
        after, total = basis.advance(plain(weights), [None] * 3, np.zeros(basis.size))
        results = [basis.combine(weights[0]), *after, total, basis.gram]
        return [np.asarray(result).tobytes() for result in (*results, basis.peak(weights))]

    found = []
    monkeypatch.setattr(columns, "STRIPE", BLOCK)
    for threads in (1, 4):
        monkeypatch.setattr(columns, "_threads", lambda threads=threads: threads)
        found.append(everything())
    assert found[0] == found[1]


@pytest.mark.parametrize("size", [500, LONG_ROW - 1, LONG_ROW + 500])
@pytest.mark.parametrize("clients", [3, 14])
@pytest.mark.parametrize("writeable", [True, False])
@pytest.mark.parametrize("alone", [True, False])
def test_advancing_vectors_moves_their_sum_by_what_was_really_written(
    size: int, clients: int, writeable: bool, alone: bool
) -> None:
    """In their own memory, unless somebody else still looks at it.

    The old sum counts only if there are others in it.
    """
    basis, rows = filled(clients, size, np.float32)
    draw = np.random.default_rng(2)
    before = draw.standard_normal((clients, size)).astype(np.float32)
    before[-1] = 0  # this client is new
    others = 0.0 if alone else draw.standard_normal(size)
    total = np.full(size, np.nan) if alone else before.sum(0, dtype=np.float64) + others
    weights = draw.standard_normal((clients, basis.slots))
    squares: list[float] = []
    given = before[:-1].copy()
    given.flags.writeable = total.flags.writeable = writeable
    after, F = basis.advance(plain(weights), [*given, None], total, squares, alone=alone)
    np.testing.assert_allclose(squares, np.sum(np.square(after, dtype=np.float64), axis=1), rtol=1e-5)
    np.testing.assert_allclose(after, before + weights @ rows, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(F, np.sum(after, axis=0, dtype=np.float64) + others, rtol=1e-13, atol=1e-13)
    assert [np.shares_memory(*pair) for pair in zip(given, after, strict=False)] == (clients - 1) * [
        writeable
    ]
    assert np.shares_memory(F, total) == writeable
    if not writeable:
        np.testing.assert_array_equal(given, before[:-1])


def test_memory_is_reused_once_it_was_released() -> None:
    workspace = Workspace()
    first = Basis(3, np.float32, capacity=2, workspace=workspace)
    first.append(np.ones(3, np.float32), np.zeros(3, np.float32))
    other = Basis(3, np.float32, capacity=2, workspace=workspace)
    assert not np.shares_memory(first.rows, other._rows._store)
    held = first._rows._store
    first.release()
    assert first.slots == 0
    assert np.shares_memory(held, Basis(3, np.float32, capacity=1, workspace=workspace)._rows._store)
    for size, dtype, capacity in ((4, np.float32, 2), (3, np.float64, 2), (3, np.float32, 9)):
        workspace.give(held)
        another = Basis(size, dtype, capacity=capacity, workspace=workspace)
        assert not np.shares_memory(held, another._rows._store)


def test_memory_of_long_results_is_reused_once_nobody_refers_to_them() -> None:
    """Not before: whoever holds a vector, or a part of it, keeps its content."""
    size, workspace = LONG // 4, Workspace()
    basis = Basis(size, np.float32, workspace=workspace)
    basis.append(np.ones(size, np.float32), np.zeros(size, np.float32))
    nothing = np.zeros(size)
    nothing.flags.writeable = False  # or the new total would take its place
    first, (flow,), total = (
        basis.combine(np.ones(1)),
        *basis.advance(plain(np.ones((1, 1))), [None], nothing),
    )
    part, addresses = flow[5:], {first.ctypes.data, flow.ctypes.data}
    del first, flow
    held = [basis.combine(np.full(1, 3.0)) for _ in range(3)]
    np.testing.assert_array_equal(part, 1.0)
    assert addresses & {vector.ctypes.data for vector in held} == addresses - {part.ctypes.data - 20}
    where = total.ctypes.data
    del total
    assert basis.advance(plain(np.ones((1, 1))), [None], nothing)[1].ctypes.data == where


def test_long_rows_take_no_memory_of_their_own() -> None:
    """But for their samples: they are formed from what came in, and follow it until they are rewritten."""
    size = LONG_ROW + 5
    end, start, F = np.random.default_rng(0).standard_normal((3, size)).astype(np.float32)
    basis = Basis(size, np.float32, capacity=8, gram=True)
    basis.extend([(end, start, None)], total=F.astype(np.float64))
    assert basis._rows._store.nbytes == basis._rows.capacity * 4 * sample.width(size)
    np.testing.assert_array_equal(basis.row(1), end - start)
    np.testing.assert_array_equal(basis.rows, [F, end - start])
    np.testing.assert_array_equal(basis.moves(slice(7, 99)), [(end - start)[7:99]])
    assert basis.gram is not None
    exact = float(np.sum(np.square(end - start, dtype=np.float64)))
    assert basis.gram[1, 1] == pytest.approx(exact, rel=0.05)
    came = end.copy()
    basis.rewrite(lambda moves, columns: np.multiply(moves, 2, out=moves))
    np.testing.assert_array_equal(basis.rows, [F, 2 * (end - start)])
    np.testing.assert_array_equal(end, came)
    assert basis.squares() == pytest.approx([4 * exact], rel=1e-5)
    assert basis.gram[1, 1] == pytest.approx(4 * exact, rel=0.05)


@pytest.mark.parametrize("capacity", [0, 1, 6])
def test_any_number_of_rows_finds_room(capacity: int) -> None:
    basis, x_c = Basis(2, np.float64, capacity=capacity, gram=True), np.zeros(2)
    for i in range(20):
        basis.append(np.full(2, 2.0 * i), np.full(2, float(i)), older=(i, x_c))
    np.testing.assert_array_equal(basis.rows[basis.move_slots], np.repeat(np.arange(20.0), 2).reshape(20, 2))


@pytest.mark.parametrize("clients", [1, 3, 64])
@pytest.mark.parametrize("older", [0, 2])
def test_displacements_added_at_once_are_those_added_one_by_one(clients: int, older: int) -> None:
    draw = np.random.default_rng(0)
    F, x_c, ends = draw.standard_normal(50), draw.standard_normal(50), draw.standard_normal((clients, 50))
    starts = [x_c + 1 + (i % 2) if i < older else x_c for i in range(clients)]
    moves = [(end, starts[i], (i % 2, x_c) if i < older else None) for i, end in enumerate(ends)]
    together, single = Basis(50, np.float64, gram=True), Basis(50, np.float64, gram=True)
    together.extend(moves, total=F)
    single.set_total(F)
    for end, start, version in moves:
        single.append(end, start, older=version)
    assert (together.total_slot, together.move_slots) == (single.total_slot, single.move_slots)
    np.testing.assert_array_equal(together.rows, single.rows)
    assert together.gram is not None
    assert single.gram is not None
    np.testing.assert_allclose(together.gram, single.gram, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(together.squares(), single.squares(), rtol=1e-13)


def test_squares_are_kept_from_the_check_of_each_displacement() -> None:
    basis = Basis(3, np.float32)
    basis.append(np.array([3, 4, 0], np.float32), np.zeros(3, np.float32))
    basis.append(np.array([1, 1, 1], np.float32), np.zeros(3, np.float32))
    np.testing.assert_array_equal(basis.squares(), [25.0, 3.0])
    assert basis.gram is None


@pytest.mark.parametrize("size", [5, LONG_ROW])
def test_rows_that_are_not_measured_are_when_somebody_asks(size: int) -> None:
    """So are their offsets of no interest; what is written down has been looked at anyway."""
    draw = np.random.default_rng(0)
    x_c, old, *ends = draw.standard_normal((5, size)).astype(np.float32)
    later, first = Basis(size, np.float32, measured=False), Basis(size, np.float32)
    for basis in (later, first):
        basis.append(ends[0], x_c)
        basis.append(ends[1], old, older=(3, x_c))
    assert later.slots == first.slots == 3
    weights = np.array([0.5, 2.0, -1.0])
    np.testing.assert_array_equal(later.combine(weights), first.combine(weights))
    assert later.squares() == first.squares()
    later.append(ends[2], x_c)
    first.append(ends[2], x_c)
    assert later.squares() == first.squares()
    assert len(later.squares()) == 3


@pytest.mark.parametrize("value", [np.nan, np.inf, np.float32(1e30)])
def test_a_row_that_was_not_measured_is_refused_when_its_length_is_asked_for(value: float) -> None:
    basis, end = Basis(LONG_ROW, np.float32, measured=False), np.zeros(LONG_ROW, np.float32)
    end[3] = value
    basis.append(end, np.zeros(LONG_ROW, np.float32))
    with pytest.raises(NonFiniteError, match="displacement"):
        basis.squares()


def test_an_offset_is_held_once_per_version() -> None:
    basis, x_c, old = Basis(2, np.float64, gram=True), np.zeros(2), np.ones(2)
    for _ in range(3):
        basis.append(np.full(2, 5.0), old, older=(7, x_c))
    assert basis.slots == 3 + 1
    selected = np.zeros(basis.slots)
    selected[basis.offset_slot(7)] = 1
    np.testing.assert_array_equal(basis.combine(selected), old - x_c)


HUGE = np.float32(1e30)


@pytest.mark.parametrize("where", ["end", "start"])
@pytest.mark.parametrize("value", [np.nan, np.inf, HUGE])
@pytest.mark.parametrize("gram", [True, False])
@pytest.mark.parametrize("size", [5, LONG_ROW])
def test_rows_that_cannot_be_used_leave_no_trace(where: str, value: float, gram: bool, size: int) -> None:
    """Displacement and offset of a failed update go together, and so does its version."""
    x_c = np.zeros(size, np.float32)
    good: dict[str, Any] = {"end": np.ones(size, np.float32), "start": x_c}
    basis = Basis(size, np.float32, gram=gram)
    if gram:
        basis.set_total(np.ones(size))
    basis.append(**good)
    before = (basis.slots, basis.squares().copy(), None if basis.gram is None else basis.gram.copy())
    bad = {name: vector.copy() for name, vector in good.items()}
    bad[where][3] = value
    with pytest.raises(NonFiniteError, match="3" if not np.isfinite(value) else "1e\\+30.*float32"):
        basis.append(**bad, older=(9, x_c))
    assert basis.slots == before[0]
    np.testing.assert_array_equal(basis.squares(), before[1])
    np.testing.assert_array_equal(basis.gram, before[2])
    with pytest.raises(KeyError):
        basis.offset_slot(9)
    basis.append(**good)
    assert basis.slots == before[0] + 1


@pytest.mark.parametrize("where", ["end", "start"])
def test_a_vector_of_another_length_is_refused(where: str) -> None:
    vectors: dict[str, Any] = {"end": np.ones(4), "start": np.ones(4), where: np.ones(3)}
    basis = Basis(4, np.float64, gram=True)
    with pytest.raises(LayoutError, match="the model has 4 parameters"):
        basis.append(**vectors)
    assert basis.slots == 0


@pytest.mark.parametrize("value", [np.nan, 1e30])
def test_a_sum_of_flows_that_cannot_be_used_leaves_no_trace(value: float) -> None:
    basis = Basis(4, np.float32, gram=True)
    with pytest.raises(NonFiniteError, match="sum of flows"):
        basis.set_total(np.array([0.0, 0.0, value, 0.0]))
    assert (basis.slots, basis.total_slot) == (0, None)


@pytest.mark.parametrize("size", [1, 500, BLOCK + 7, LONG_ROW - 1, LONG_ROW + 33])
@pytest.mark.parametrize("clients", [2, 45])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_squares_of_what_was_written_are_to_the_bit_those_that_are_taken_again(
    size: int, clients: int, dtype: npt.DTypeLike
) -> None:
    """After a restart lengths are taken from what was stored, and the run goes on as it would have."""
    if clients > 2 and size > BLOCK + 7:
        size = STRIPE + 77  # for the memory's sake
    basis, _ = filled(clients, size, dtype)
    squares: list[float] = []
    weights = np.random.default_rng(0).standard_normal((clients, basis.slots))
    flows, _ = basis.advance(plain(weights), [None] * clients, np.zeros(size), squares)
    assert squares == [squared_length(flow) for flow in flows]


def test_rows_are_looked_for_where_they_are_after_a_refused_one_had_room_made_for_it() -> None:
    size = 50
    basis, _ = filled(3, size, np.float32)
    before = basis.combine(np.ones(basis.slots))
    store = basis._rows._store
    for _ in range(40):  # until there is no room for one more
        if basis._rows.capacity == basis.slots:
            break
        basis.append(np.ones(size, np.float32), np.zeros(size, np.float32))
        before = basis.combine(np.ones(basis.slots))
        store = basis._rows._store
    with pytest.raises(NonFiniteError):
        basis.append(np.full(size, np.nan, np.float32), np.zeros(size, np.float32))
    assert not np.shares_memory(store, basis._rows._store), "room was made"
    store[:] = 9  # whoever still looked there would find this
    np.testing.assert_array_equal(basis.combine(np.ones(basis.slots)), before)
