"""The compiled passes: what they compute, on every set of instructions, and that they are optional."""

import ctypes
import logging
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from compiled import using
from hypothesis import given, settings
from hypothesis import strategies as st

from fedecado.common.checksum import crc32
from fedecado.common.errors import NonFiniteError
from fedecado.common.wire import BulkChunk, Receiver
from fedecado.server.numerics import native
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.native import LEVELS, Advance, Drawn, Kernels, Packed, table
from fedecado.server.numerics.spread import Own, Spread
from fedecado.v1.transfer_pb2 import Trailer

Array = npt.NDArray[Any]

WIDEST = 512
"""Columns of a tile in kernels.c."""
COMPILE = Path(__file__).parents[3] / "server" / "compile.py"


@pytest.fixture(params=LEVELS)
def kernels(request: pytest.FixtureRequest) -> Iterator[Kernels]:
    with using(request.param) as found:
        yield found


def numbers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


SIZES = (1, 5, 16, 31, 33, 64, WIDEST - 1, WIDEST, WIDEST + 1, 3 * WIDEST + 7)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["vector", "difference", "wide"])
def test_a_row_is_measured_written_down_and_sampled(kernels: Kernels, size: int, kind: str) -> None:
    first, last = size // 3, size - size // 5
    vector, less = numbers(0, 2, size)
    wide = vector.astype(np.float64) / 3
    row, exact = {
        "vector": ((vector, None), vector),
        "difference": ((vector, less), vector - less),
        "wide": ((wide, None), wide.astype(np.float32)),
    }[kind]
    places = table([(less, None), row])
    assert places is not None
    picked = (
        np.unique(np.random.default_rng(1).integers(first, last, 9)) if last > first else np.empty(0, int)
    )
    out, drawn = np.full(size, 9, np.float32), np.full(len(picked), 9, np.float32)
    square = kernels.measure(places, 1, slice(first, last), out, Drawn(picked.astype(np.intp), drawn))
    assert square == pytest.approx(float(np.sum(np.square(exact[first:last], dtype=np.float64))), rel=1e-5)
    np.testing.assert_array_equal(out[first:last], exact[first:last])
    np.testing.assert_array_equal(drawn, exact[picked])
    assert {*out[:first], *out[last:]} <= {9}, "columns of others stay as they are"
    assert kernels.measure(places, 1, slice(first, last)) == square


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shift", [0, 1, 3, 6])
def test_numbers_are_copied_and_squared_wherever_they_lie(kernels: Kernels, size: int, shift: int) -> None:
    """In a message they begin at any byte."""
    came = numbers(0, size)
    data = b"x" * shift + came.tobytes()
    room = np.full(size + shift + 1, 9, np.float32)
    place = room[shift : shift + size]
    square = kernels.take(memoryview(data)[shift:], place.view(np.uint8))
    np.testing.assert_array_equal(place, came)
    assert {*room[:shift], *room[shift + size :]} == {9}
    assert square == pytest.approx(float(np.sum(np.square(came, dtype=np.float64))), rel=1e-5)
    came[size // 2] = np.nan
    assert not np.isfinite(kernels.take(memoryview(came.tobytes()), place.view(np.uint8)))


@pytest.mark.parametrize("cut", [4, 1024, 999])
def test_a_receiver_that_takes_numbers_this_way_finds_the_same(cut: int) -> None:
    """Also where chunks divide a number, or bring one that is none."""
    take = native.taking("float32")
    if take is None:
        pytest.skip("fedecado was installed without a C compiler")
    came = numbers(0, 3000)
    for bad in (None, 77, 2999):
        if bad is not None:
            came[bad] = np.inf
        data, found = came.tobytes(), list[tuple[bytes | str, float]]()
        for way in (take, None):
            receiver = Receiver(len(data), max_bytes=len(data), take=way)
            try:
                for at in range(0, len(data), cut):
                    receiver.add(BulkChunk(at, memoryview(data)[at : at + cut]))
                vector = receiver.finish(Trailer(length=len(data), crc32=crc32(data)))
                found.append((vector.tobytes(), receiver.square))
            except NonFiniteError as error:
                found.append((str(error), 0.0))
        assert found[0][0] == found[1][0]
        assert found[0][1] == pytest.approx(found[1][1], rel=1e-5)


def test_only_float32_is_taken_this_way() -> None:
    assert native.taking("float64") is None


@pytest.mark.parametrize("size", [*SIZES, 32_768])
def test_short_rows_are_written_down_with_all_their_products(kernels: Kernels, size: int) -> None:
    a, b, start = numbers(0, 3, size)
    F = numbers(1, size).astype(np.float64) / 3
    places = table([(F, None), (a, start), (b, start)])
    assert places is not None
    store = np.full((4, size), 9, np.float32)
    products = kernels.gather(places, store[:3])
    rows = np.stack([F.astype(np.float32), a - start, b - start])
    np.testing.assert_array_equal(store[:3], rows)
    assert {*store[3]} == {9}
    exact = rows.astype(np.float64) @ rows.T
    np.testing.assert_allclose(products, exact, atol=1e-5 * float(exact.max()))
    np.testing.assert_array_equal(products, products.T)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("onto", [True, False])
def test_rows_are_combined(kernels: Kernels, size: int, onto: bool) -> None:
    vectors, base, weights = numbers(0, 5, size), numbers(1, size), numbers(2, 4)
    F = vectors[4].astype(np.float64)
    places = table([(vectors[0], vectors[1]), (vectors[2], None), (F, None), (vectors[3], vectors[1])])
    assert places is not None
    rows = np.stack([vectors[0] - vectors[1], vectors[2], F.astype(np.float32), vectors[3] - vectors[1]])
    out = np.full(size, 9, np.float32)
    first, last = size // 3, size - size // 5
    kernels.combine(places, weights, slice(first, last), base if onto else None, out)
    exact = weights.astype(np.float64) @ rows + (base if onto else 0)
    np.testing.assert_allclose(out[first:last], exact[first:last], rtol=1e-5, atol=1e-5)
    assert {*out[:first], *out[last:]} <= {9}


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(1, 3 * WIDEST),
    clients=st.integers(1, 70),
    spread=st.booleans(),
    alone=st.booleans(),
    same=st.booleans(),
)
@pytest.mark.parametrize("level", LEVELS)
def test_clients_vectors_and_their_sum_are_advanced(
    level: str, seed: int, size: int, clients: int, spread: bool, alone: bool, same: bool
) -> None:
    """Written to the same place or to another; of rows, or of a few combinations of rows and of own ones."""
    draw = np.random.default_rng(seed)
    rows = draw.standard_normal((clients + 2, size)).astype(np.float32)
    before = draw.standard_normal((clients, size)).astype(np.float32)
    new = draw.random(clients) < 0.2
    before[new] = 0
    if spread:
        shares, factors = numbers(seed, clients, 2), numbers(seed + 1, 2, len(rows))
        own, slots = numbers(seed + 2, clients, 2), draw.integers(0, len(rows), (clients, 2), np.intp)
        slots[:, 1] = np.where(draw.random(clients) < 0.5, -1, slots[:, 1])
        packed = Packed(shares, factors, own, slots)
        dense = shares.astype(np.float64) @ factors
        for o in range(2):
            has = slots[:, o] >= 0
            np.add.at(dense, (np.flatnonzero(has), slots[has, o]), own[has, o])
    else:
        packed = Packed(numbers(seed, clients, len(rows)))
        dense = packed.shares.astype(np.float64)
    total = None if alone else draw.standard_normal(size)
    given = [None if empty else row.copy() for empty, row in zip(new, before, strict=True)]
    after = [np.full(size, 9, np.float32) if row is None or not same else row for row in given]
    moved = np.full(size, 9.0) if total is None or not same else total.copy()
    sums = total if total is None or not same else moved
    places = table([(row, None) for row in rows])
    assert places is not None
    first, last = size // 4, size - size // 7
    with using(level) as found:
        squares = found.advance(places, Advance(packed, given, after, sums, moved), slice(first, last))
    columns = slice(first, last)
    now = np.stack(after)[:, columns]
    size_of_terms = np.abs(dense) @ np.abs(rows) + np.abs(before)
    wrong = np.abs(now - (before + dense @ rows)[:, columns])
    assert (wrong <= 1e-5 * size_of_terms[:, columns]).all()
    np.testing.assert_allclose(squares, np.sum(np.square(now, dtype=np.float64), axis=1), rtol=1e-5)
    # The sum is that of what was written, to the last digits of float64.
    change = np.sum(now, axis=0, dtype=np.float64) - (0 if alone else np.sum(before[:, columns], 0, float))
    expected = change + (0 if total is None else total[columns])
    np.testing.assert_allclose(moved[columns], expected, rtol=1e-12, atol=1e-12)
    for row, empty in zip(after, new, strict=True):
        if empty or not same:
            assert {*row[:first], *row[last:]} <= {9}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_what_cannot_be_squared_shows_in_the_squares(kernels: Kernels, value: float) -> None:
    vector = np.zeros(WIDEST + 3, np.float32)
    for at in (0, 40, WIDEST + 2):
        vector[at] = value
        places = table([(vector, None)])
        assert places is not None
        with np.errstate(over="ignore"):
            assert not np.isfinite(kernels.measure(places, 0, slice(0, len(vector))))
        vector[at] = 0


def test_rows_that_do_not_lie_as_needed_are_left_to_numpy() -> None:
    good, wide = np.zeros(8, np.float32), np.zeros(8)
    assert table([(good, None), (good, good), (wide, None)]) is not None
    for bad in ((wide, wide), (good[::2], None), (good.astype(np.float16), None), (good, wide)):
        assert table([(good, None), bad]) is None
    shifted = np.zeros(33, np.uint8)[1:].view(np.float32)
    assert table([(shifted, None)]) is None


@pytest.mark.parametrize("clients", [3, 70])
@pytest.mark.parametrize("size", [40, 1_100_000])
def test_numpy_computes_the_same(monkeypatch: pytest.MonkeyPatch, clients: int, size: int) -> None:
    """Centre, vectors, sums and inner products, with clients that are late and what clients share."""

    def everything() -> list[Array]:
        draw = np.random.default_rng(5)
        F, x_c, older = draw.standard_normal(size), *numbers(6, 2, size)
        basis = Basis(size, np.float32, capacity=clients, gram=True)
        basis.set_total(F)
        for i in range(clients):
            late = i < 2
            basis.append(numbers(7 + i, size), older if late else x_c, older=(1, x_c) if late else None)
        both = np.arange(2)
        own = Own(np.array(basis.move_slots), both, np.full(2, basis.offset_slot(1)))
        spread = Spread(own, draw.standard_normal((3, clients)), draw.standard_normal((1, basis.slots)))
        vectors = [None, *(numbers(99 + i, size) for i in range(clients - 1))]
        squares: list[float] = []
        flows, total = basis.advance(spread, vectors, F.copy(), squares)
        assert basis.gram is not None
        centre = basis.combine(draw.standard_normal(basis.slots), onto=x_c)
        return [centre, total, np.array(squares), np.array(basis.squares()), basis.gram, *flows]

    compiled = everything()
    monkeypatch.setattr(native, "kernels", lambda: None)
    for ours, theirs in zip(compiled, everything(), strict=True):
        scale = float(np.sqrt(np.mean(np.square(theirs))))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * scale)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A place for another library."""
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "kernels.so")
    native.kernels.cache_clear()
    yield tmp_path / "kernels.so"
    native.kernels.cache_clear()


def test_without_a_library_nothing_is_said(elsewhere: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert native.kernels() is None
    assert not caplog.records


def test_a_library_that_does_not_load_is_not_used(elsewhere: Path, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere.write_bytes(b"not a library")
    with caplog.at_level(logging.WARNING):
        assert native.kernels() is None
    assert "install fedecado again" in caplog.text


def test_a_library_of_another_revision_is_not_used(elsewhere: Path, caplog: pytest.LogCaptureFixture) -> None:
    if (cc := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler")
    source = elsewhere.with_suffix(".c")
    source.write_text("int fedecado_revision(void) { return 999; }\n")
    subprocess.run([cc, "-shared", "-fPIC", source, "-o", elsewhere], check=True)
    assert ctypes.CDLL(str(elsewhere)).fedecado_revision() == 999
    with caplog.at_level(logging.WARNING):
        assert native.kernels() is None
    assert "revision 999" in caplog.text


def test_installing_without_a_compiler_says_so_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    shutil.copytree(native.LIBRARY.parent, folder / "fedecado/server/numerics/native")
    shutil.copy(COMPILE, folder)
    for compiler, problem in (("no-such-compiler", "no C compiler found"), ("false", "false failed: 1")):
        done = subprocess.run(
            [sys.executable, folder / "compile.py"],
            env={"CC": compiler, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert problem in done.stderr
        assert not list(folder.rglob("*.so")), "an older library would not be that of this source"


def test_the_library_is_compiled_from_the_source_that_is_here(tmp_path: Path) -> None:
    """Without a warning of the compiler."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path / "server"
    shutil.copytree(native.LIBRARY.parent, folder / "fedecado/server/numerics/native")
    shutil.copy(COMPILE, folder)
    for made in folder.rglob("*.so"):
        made.unlink()
    done = subprocess.run(
        [sys.executable, folder / "compile.py"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    (library,) = folder.rglob("*.so")
    assert ctypes.CDLL(str(library)).fedecado_revision() == native.REVISION
