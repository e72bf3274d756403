"""Updates in fewer bytes: what rounding may take, and that nothing else is lost."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedecado.common.errors import LayoutError, NonFiniteError
from fedecado.common.feedback import Feedback
from fedecado.common.formats import BLOCK, PIECE, Decoder, Packed, decode, encode, packed_bytes
from fedecado.common.layout import DType, Entry, Layout, Vector
from fedecado.common.names import COMPACT, Compact, Format

SIZES = [
    1,
    2,
    3,
    BLOCK - 1,
    BLOCK,
    BLOCK + 1,
    5 * BLOCK + 7,
    PIECE - 1,
    PIECE,
    PIECE + 1,
    2 * PIECE + 3 * BLOCK + 5,
]
formats = pytest.mark.parametrize("format", COMPACT)
dtypes = pytest.mark.parametrize("dtype", get_args(DType))


def layout_of(parameters: int, buffers: int = 0, dtype: DType = "float32") -> Layout:
    entries = [Entry("x", (parameters,))] + [Entry("mean", (buffers,), "buffer")] * bool(buffers)
    return Layout(tuple(entries), dtype)


def way(layout: Layout, scale: float = 1e-3, seed: int = 0) -> tuple[Vector, Vector]:
    """A start and an end."""
    draw = np.random.default_rng(seed)
    start = draw.standard_normal(layout.size).astype(layout.dtype)
    return start, (start + scale * draw.standard_normal(layout.size)).astype(layout.dtype)


def fed(packed: Packed, layout: Layout, start: Vector, cuts: list[int]) -> Vector:
    """What a decoder makes of the payload, cut into pieces."""
    out: Vector = np.full(layout.size, np.nan, layout.dtype)
    decoder, data = Decoder(packed.format, layout, start, out), packed.payload.data
    seen = [part for piece in pieces(data, cuts) for part in decoder.feed(piece)]
    decoder.finish()
    assert [part.start for part in seen] == [0, *(part.stop for part in seen[:-1])], "in order, without gaps"
    assert decoder.numbers == seen[-1].stop == layout.size
    return out


def pieces(data: memoryview, cuts: list[int]) -> Iterator[memoryview]:
    edges = [0, *sorted(cut % len(data) for cut in cuts), len(data)]
    return (data[a:b] for a, b in pairwise(edges) if a < b)


def bound(format: Compact, moved: Vector) -> Vector:
    """The most that rounding may take from each number."""
    size = np.abs(moved.astype(np.float64))
    if format == "float16":
        return np.maximum(size * 2.0**-11, 2.0**-25)
    if format == "bfloat16":
        return size * 2.0**-8 + 1e-40
    largest = [size[at : at + BLOCK].max() for at in range(0, len(size), BLOCK)]
    return np.repeat(largest, BLOCK)[: len(size)] * ((0.5 + 1e-4) / 127) + 1e-36


def test_the_names_of_all_formats_agree() -> None:
    assert get_args(Format) == ("full", *COMPACT)


@formats
@dtypes
@pytest.mark.parametrize("size", SIZES)
def test_an_update_is_as_near_as_its_format_allows_and_buffers_are_exact(
    format: Compact, dtype: DType, size: int
) -> None:
    layout = layout_of(size, buffers=5, dtype=dtype)
    start, end = way(layout)
    packed = encode(format, layout, start, end)
    got = decode(packed, layout, start)
    moved = (end - start)[:size]
    spacing = np.spacing(np.abs(start[:size])).astype(np.float64)  # the sum is rounded, too
    assert np.all(np.abs((got - end)[:size]) <= bound(format, moved) + spacing)
    np.testing.assert_array_equal(got[size:], end[size:])
    assert packed.payload.nbytes == packed_bytes(format, layout)
    assert packed.payload.nbytes <= size * (1 if format == "int8" else 2) + 4 * math.ceil(size / BLOCK) + 40


@formats
@dtypes
def test_what_is_missing_is_told_to_the_last_bit(format: Compact, dtype: DType) -> None:
    layout = layout_of(3 * BLOCK + 1, dtype=dtype)
    (start, end), owed = way(layout), np.full(layout.size, 1e-5, dtype)
    packed = encode(format, layout, start, end, owed)
    wanted = (end - start) + owed
    np.testing.assert_array_equal(packed.missing, wanted - (decode(packed, layout, start) - start))
    assert np.linalg.norm(packed.missing) < 0.05 * np.linalg.norm(wanted)


@given(
    st.sampled_from(COMPACT),
    st.sampled_from(get_args(DType)),
    st.integers(1, 3 * BLOCK),
    st.integers(0, 9),
    st.lists(st.integers(0, 1 << 20), max_size=12),
)
def test_any_cut_gives_the_same_bits(
    format: Compact, dtype: DType, parameters: int, buffers: int, cuts: list[int]
) -> None:
    layout = layout_of(parameters, buffers, dtype)
    start, end = way(layout)
    packed = encode(format, layout, start, end)
    np.testing.assert_array_equal(fed(packed, layout, start, cuts), decode(packed, layout, start))


@formats
def test_bytes_may_come_one_by_one(format: Compact) -> None:
    layout = layout_of(BLOCK + 3, 2)
    start, end = way(layout)
    packed = encode(format, layout, start, end)
    cuts = list(range(len(packed.payload)))
    np.testing.assert_array_equal(fed(packed, layout, start, cuts), decode(packed, layout, start))


@formats
def test_who_has_not_moved_arrives_where_it_was(format: Compact) -> None:
    layout = layout_of(2 * BLOCK + 1, 3)
    start, _ = way(layout)
    packed = encode(format, layout, start, start.copy())
    np.testing.assert_array_equal(decode(packed, layout, start), start)
    assert not packed.missing.any()


single = st.floats(-65504, 65504, width=32) | st.floats(-(2.0**-13), 2.0**-13, width=32)


@given(st.lists(single, min_size=1, max_size=50))
def test_sixteen_bit_formats_round_as_torch_does(values: list[float]) -> None:
    layout = layout_of(len(values))
    start, end = np.zeros(len(values), np.float32), np.array(values, np.float32)
    for format, kind in (("float16", torch.float16), ("bfloat16", torch.bfloat16)):
        wanted = torch.from_numpy(end).to(kind)
        packed = encode(format, layout, start, end)  # type: ignore[arg-type]  # both are formats
        assert packed.payload.tobytes() == wanted.view(torch.int16).numpy().tobytes()
        np.testing.assert_array_equal(decode(packed, layout, start), wanted.to(torch.float32).numpy())


@settings(max_examples=50)
@given(st.sampled_from(COMPACT), st.sampled_from([1e-44, 1e-40, 1e-30, 1e-12, 1.0, 3e4]), st.integers(0, 99))
def test_every_size_of_displacement_is_written(format: Compact, scale: float, seed: int) -> None:
    layout = layout_of(BLOCK + 10, dtype="float64")
    start: Vector = np.zeros(layout.size)
    end = scale * np.random.default_rng(seed).uniform(-1, 1, layout.size)
    got = decode(encode(format, layout, start, end), layout, start)
    assert np.all(np.abs(got - end) <= bound(format, end) * (1 + 1e-6))


@formats
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 1e39])
@pytest.mark.parametrize("at", [0, BLOCK, PIECE + 3])
def test_what_is_no_number_is_refused_and_named(format: Compact, wrong: float, at: int) -> None:
    layout = layout_of(PIECE + 10, dtype="float64")
    start, end = way(layout)
    end[at] = wrong
    with pytest.raises(NonFiniteError, match=f"parameter {at} moved by .*; lower the learning rate"):
        encode(format, layout, start, end)


def test_what_float16_cannot_hold_is_refused_with_a_remedy() -> None:
    layout = layout_of(3)
    start, end = np.zeros(3, np.float32), np.array([0, -65504, 65520], np.float32)
    with pytest.raises(NonFiniteError, match=r"parameter 2 moved by 65520, .*65504; set upload.format to bf"):
        encode("float16", layout, start, end)
    end[2] = 65504
    np.testing.assert_array_equal(decode(encode("float16", layout, start, end), layout, start), end)


@pytest.mark.parametrize("bits", [0x7C00, 0xFC00, 0x7E00])
def test_an_infinite_float16_on_the_wire_is_no_number(bits: int) -> None:
    layout = layout_of(1)
    packed = Packed("float16", np.array([bits], "<u2").view(np.uint8), np.zeros(1))
    assert not np.isfinite(decode(packed, layout, np.zeros(1, np.float32))).any()


@formats
def test_vectors_of_another_layout_are_refused(format: Compact) -> None:
    layout, (start, end) = layout_of(10), way(layout_of(10))
    with pytest.raises(LayoutError, match="end state has shape"):
        encode(format, layout, start, end[:-1])
    with pytest.raises(LayoutError, match="start state is float64"):
        encode(format, layout, start.astype(np.float64), end)


@formats
def test_with_feedback_nothing_is_lost_over_many_updates(format: Compact) -> None:
    """Tiny steps beside a large one in the same block round to nothing each time, but not in sum."""
    layout = layout_of(BLOCK)
    step: Vector = np.full(layout.size, 1e-4, np.float32)
    step[0] = 1.0
    sums = {}
    for keep in (True, False):
        account, x = Feedback(format, keep=keep), np.zeros(layout.size, np.float32)
        for task in range(200):
            x = decode(account.pack(task, layout, x, x + step), layout, x)
            account.settle(task, counted=True)
        sums[keep] = x
    assert np.all(np.abs(sums[True] - 200 * step)[1:] <= 1 / 127)
    if format == "int8":
        assert not sums[False][1:].any()


@formats
def test_only_what_counted_is_owed(format: Compact) -> None:
    layout = layout_of(BLOCK + 3)
    start, end = way(layout)
    account = Feedback(format)
    first = account.pack(1, layout, start, end)
    account.settle(1, counted=True)
    assert account.owed is first.missing
    refused = account.pack(2, layout, start, end)
    account.settle(2, counted=False)
    assert account.owed is first.missing
    again = account.pack(3, layout, start, end)
    np.testing.assert_array_equal(again.payload, refused.payload)  # neither paid nor owed twice
    account.settle(2, counted=True)  # of a task that is settled
    assert account.owed is first.missing
    for _ in range(2):
        account.settle(3, counted=True)
    assert account.owed is again.missing
