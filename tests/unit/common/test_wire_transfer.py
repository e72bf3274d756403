"""Vectors arrive whole and exact, or not at all."""

from collections.abc import Iterable
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.common.errors import ChecksumError, LayoutError, NonFiniteError, ProtocolError
from fedecado.common.layout import DType, Vector
from fedecado.common.wire import (
    CHUNK_BYTES,
    COPIED_BYTES,
    BulkChunk,
    Frames,
    Receiver,
    encode,
    parse_coordinator_message,
    parse_model_response,
    parse_worker_message,
)
from fedecado.v1.admin_pb2 import GetModelResponse
from fedecado.v1.session_pb2 import CoordinatorMessage, WorkerMessage
from fedecado.v1.transfer_pb2 import Chunk, Trailer

ENVELOPES = (WorkerMessage, CoordinatorMessage, GetModelResponse)
PARSERS = (parse_worker_message, parse_coordinator_message, parse_model_response)
CHUNK = CHUNK_BYTES // 4
SIZES = (0, 1, 7, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5)


def make_vector(size: int, dtype: DType = "float32") -> Vector:
    return np.random.default_rng(size).standard_normal(size).astype(dtype)


def receive(messages: Iterable[bytes], receiver: Receiver, parse: Any = parse_worker_message) -> Vector:
    for data in messages:
        message = parse(data)
        if not isinstance(message, BulkChunk):
            return receiver.finish(message.trailer)
        receiver.add(message)
    raise AssertionError("no trailer came")


def receiver_for(vector: Vector, out: Vector | None = None) -> Receiver:
    dtype: DType = "float64" if vector.dtype == np.float64 else "float32"
    return Receiver(vector.nbytes, dtype, max_bytes=vector.nbytes, out=out)


def trailer_of(vector: Vector) -> Trailer:
    return WorkerMessage.FromString(list(encode(vector))[-1]).trailer


def cut(vector: Vector, places: Iterable[int]) -> list[BulkChunk]:
    """Chunks of any size, cut also within numbers."""
    data, edges = vector.tobytes(), sorted({0, vector.nbytes, *places})
    return [BulkChunk(start, memoryview(data)[start:stop]) for start, stop in pairwise(edges)]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedecado.common.wire.CHUNK_BYTES", 64)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("divisor", [1.0, 0.3])
def test_a_vector_may_be_divided_on_the_way(dtype: DType, divisor: float) -> None:
    """To the bits of the quotient, checksum included."""
    vector = make_vector(3 * CHUNK + 5, dtype)
    expected = vector / vector.dtype.type(divisor)
    assert list(encode(vector, divisor)) == list(encode(expected))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", SIZES)
def test_a_vector_of_any_size_comes_back_bit_for_bit(size: int, dtype: DType) -> None:
    vector = make_vector(size, dtype)
    received = receive(encode(vector), receiver_for(vector))
    assert received.dtype == vector.dtype
    assert received.tobytes() == vector.tobytes()


@pytest.mark.parametrize("size", SIZES)
def test_no_message_carries_more_than_a_chunk(size: int) -> None:
    *chunks, trailer = encode(make_vector(size))
    assert len(chunks) == -(-size // CHUNK)
    assert all(len(message) <= CHUNK_BYTES + 32 for message in chunks)
    assert WorkerMessage.FromString(trailer).trailer.length == 4 * size


def test_bytes_on_the_wire_are_little_endian() -> None:
    first = WorkerMessage.FromString(next(iter(encode(np.array([1.0], np.float32)))))
    assert first.chunk.data == bytes.fromhex("0000803f")


@pytest.mark.parametrize("envelope", ENVELOPES)
@pytest.mark.parametrize("size", [0, 1, 129, 5000])
@pytest.mark.usefixtures("small_chunks")
def test_frames_equal_messages_serialised_one_by_one_in_every_envelope(envelope: Any, size: int) -> None:
    vector = make_vector(size)
    data = vector.tobytes()
    chunks = [Chunk(offset=at, data=data[at : at + 64]) for at in range(0, len(data), 64)]
    plain = [envelope(chunk=chunk).SerializeToString() for chunk in chunks]
    plain.append(envelope(trailer=trailer_of(vector)).SerializeToString())
    frames = Frames(vector)
    assert list(frames) == plain
    assert frames.nbytes == vector.nbytes


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.usefixtures("small_chunks")
def test_frames_serve_any_number_of_receivers_of_any_kind(parse: Any) -> None:
    vector = make_vector(999)
    frames = Frames(vector)
    for _ in range(3):
        assert np.array_equal(receive(frames, receiver_for(vector), parse), vector)


@given(st.lists(st.integers(0, 3), max_size=200), st.integers(0, 9))
def test_frames_are_the_same_for_receivers_that_overtake_each_other(turns: list[int], kept: int) -> None:
    """Whoever is ahead or far behind, and whoever leaves early, as the last one does here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedecado.common.wire.CHUNK_BYTES", 64)
        vector = make_vector(501)
        plain, frames = list(encode(vector)), Frames(vector, kept=kept)
        seen: list[list[bytes]] = [[] for _ in range(4)]
        reading = [iter(frames) for _ in seen]
        for turn in turns:
            seen[turn] += islice(reading[turn], 2)
        del reading[3]
        for one, rest in zip(seen[:3], reading, strict=True):
            assert one + list(rest) == plain
        assert seen[3] == plain[: len(seen[3])]


@pytest.mark.usefixtures("small_chunks")
def test_frames_are_made_once_for_receivers_that_are_abreast_and_not_kept_after_them() -> None:
    vector = make_vector(999)
    frames = Frames(vector, kept=4)
    ahead, behind = iter(frames), iter(frames)
    first = [*islice(ahead, 3)]
    pairs = [(next(behind), message) for message in chain(first, ahead)]
    assert len(pairs) == 64
    assert all(one is other for one, other in pairs[:-1])  # the trailer is a few bytes
    del ahead, behind
    vector[:] = 0
    assert list(frames)[:-1] == list(encode(vector))[:-1]


def test_a_receiver_writes_into_the_vector_it_is_given() -> None:
    vector = make_vector(50)
    out = np.zeros_like(vector)
    assert receive(encode(vector), receiver_for(vector, out)) is out
    assert np.array_equal(out, vector)


@given(st.integers(1, 40), st.sets(st.integers(1, 319)))
def test_chunks_may_be_cut_anywhere(size: int, places: set[int]) -> None:
    vector = make_vector(size, "float64")
    receiver = receiver_for(vector)
    for chunk in cut(vector, (place for place in places if place < vector.nbytes)):
        receiver.add(chunk)
    assert receiver.received == vector.nbytes
    assert np.array_equal(receiver.finish(trailer_of(vector)), vector)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shift", range(8))
def test_numbers_may_begin_at_any_address(dtype: DType, shift: int) -> None:
    """What stands before them in a message is of any length; their squared length is the same to the bit."""
    vector = make_vector(COPIED_BYTES + 7, dtype)
    message = memoryview(bytes(shift) + vector.tobytes())
    receiver = receiver_for(vector)
    receiver.add(BulkChunk(0, message[shift:]))
    assert receiver.finish(trailer_of(vector)).tobytes() == vector.tobytes()
    assert receiver.square == np.dot(vector, vector)


@given(st.integers(1, 30), st.data())
def test_a_flipped_bit_is_found(size: int, data: st.DataObject) -> None:
    vector = np.arange(1, size + 1, dtype=np.float32)
    damaged = bytearray(vector.tobytes())
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    receiver = receiver_for(vector)
    with pytest.raises((ChecksumError, NonFiniteError)):
        receiver.add(BulkChunk(0, memoryview(damaged)))
        receiver.finish(trailer_of(vector))


@given(st.integers(2, 20), st.data())
def test_chunks_out_of_order_are_refused_at_once(size: int, data: st.DataObject) -> None:
    vector = make_vector(size)
    chunks = cut(vector, range(0, vector.nbytes, 4))
    shuffled = data.draw(st.permutations(chunks).filter(lambda order: order != chunks))
    wrong = next(i for i, chunk in enumerate(shuffled) if chunk is not chunks[i])
    receiver = receiver_for(vector)
    for chunk in shuffled[:wrong]:
        receiver.add(chunk)
    with pytest.raises(ProtocolError, match="a chunk is missing"):
        receiver.add(shuffled[wrong])


@pytest.mark.parametrize("last", [False, True])
def test_a_repeated_chunk_is_refused(last: bool) -> None:
    vector = make_vector(8)
    chunks = cut(vector, [16])
    receiver = receiver_for(vector)
    for chunk in chunks if last else chunks[:1]:
        receiver.add(chunk)
    with pytest.raises(ProtocolError, match="a chunk is repeated: one at byte"):
        receiver.add(chunks[-1] if last else chunks[0])


def test_a_dropped_chunk_is_found_at_the_next_one() -> None:
    vector = make_vector(12)
    first, _, third = cut(vector, [16, 32])
    receiver = receiver_for(vector)
    receiver.add(first)
    with pytest.raises(ProtocolError, match="one at byte 32 came where byte 16 is next"):
        receiver.add(third)


@given(st.integers(1, 20), st.data())
def test_a_transfer_cut_short_is_refused(size: int, data: st.DataObject) -> None:
    vector = make_vector(size)
    keep = data.draw(st.integers(0, vector.nbytes - 1))
    receiver = receiver_for(vector)
    if keep:
        receiver.add(BulkChunk(0, memoryview(vector.tobytes())[:keep]))
    with pytest.raises(ChecksumError, match=f"ends after {keep} of {vector.nbytes} bytes"):
        receiver.finish(trailer_of(vector))


def test_a_vector_longer_than_announced_is_refused_before_it_is_written() -> None:
    vector = make_vector(8)
    receiver = Receiver(28, max_bytes=28, out=np.zeros(7, np.float32))
    with pytest.raises(ProtocolError, match="runs past the announced 28 bytes"):
        receiver.add(BulkChunk(0, memoryview(vector.tobytes())))
    assert receiver.received == 0


def test_a_trailer_of_another_length_is_refused() -> None:
    vector = make_vector(4)
    receiver = receiver_for(vector)
    receiver.add(*cut(vector, []))
    with pytest.raises(ChecksumError, match="the trailer counts 20 bytes, 16 have arrived"):
        receiver.finish(Trailer(length=20, crc32=trailer_of(vector).crc32))


def test_nothing_may_follow_the_trailer() -> None:
    vector = make_vector(4)
    receiver, trailer = receiver_for(vector), trailer_of(vector)
    receiver.add(*cut(vector, []))
    receiver.finish(trailer)
    with pytest.raises(ProtocolError, match="after the trailer"):
        receiver.add(*cut(vector, []))
    with pytest.raises(ProtocolError, match="second trailer"):
        receiver.finish(trailer)


def test_an_empty_chunk_is_refused() -> None:
    """A peer could otherwise keep a transfer busy for ever."""
    with pytest.raises(ProtocolError, match="an empty chunk at byte 0"):
        receiver_for(make_vector(4)).add(BulkChunk(0, memoryview(b"")))


@given(
    st.sampled_from([np.nan, np.inf, -np.inf]),
    st.sampled_from(["float32", "float64"]),
    st.integers(0, 29),
    st.sets(st.integers(1, 119)),
)
def test_the_chunk_that_completes_a_nonfinite_number_is_refused(
    value: float, dtype: DType, at: int, places: set[int]
) -> None:
    vector = make_vector(30, dtype)
    vector[at] = value
    receiver = receiver_for(vector)
    end = (at + 1) * vector.itemsize
    with pytest.raises(NonFiniteError, match=f"number {at} of the vector is {value}"):
        for chunk in cut(vector, places):
            receiver.add(chunk)
    assert receiver.received < end


def test_the_largest_finite_numbers_pass() -> None:
    limits = np.finfo(np.float32)
    vector = np.array([limits.max, limits.min, limits.tiny, -0.0, limits.smallest_subnormal], np.float32)
    assert receive(encode(vector), receiver_for(vector)).tobytes() == vector.tobytes()


def test_more_than_fits_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(ProtocolError, match=f"announced {1 << 60} bytes where at most 64"):
        Receiver(1 << 60, max_bytes=64)


def test_a_length_that_is_no_whole_number_of_numbers_is_refused() -> None:
    with pytest.raises(ProtocolError, match="12 bytes, no whole number of float64"):
        Receiver(12, "float64", max_bytes=64)


@pytest.mark.parametrize(
    "out",
    [
        np.empty(3, np.float32),
        np.empty(4, np.float64),
        np.empty((2, 2), np.float32),
        np.empty(8, np.float32)[::2],
        np.broadcast_to(np.float32(0), 4),
    ],
)
def test_a_receiver_refuses_a_vector_that_it_cannot_fill(out: Vector) -> None:
    with pytest.raises(LayoutError, match="vector"):
        Receiver(16, max_bytes=16, out=out)


@pytest.mark.parametrize(
    "vector", [np.zeros((2, 2), np.float32), np.zeros(8, np.float32)[::2], np.zeros(4, np.float16)]
)
def test_only_contiguous_vectors_of_known_dtype_are_sent(vector: Vector) -> None:
    with pytest.raises(LayoutError, match="give a contiguous vector of float32 or float64"):
        next(encode(vector))
