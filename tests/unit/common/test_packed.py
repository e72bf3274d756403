"""Updates in a compact format as they come in: order, damage, and numbers that are none."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.common.errors import ChecksumError, FormatError, NonFiniteError, ProtocolError
from fedecado.common.formats import BLOCK, Packed, decode, encode
from fedecado.common.layout import Entry, Layout, Vector
from fedecado.common.names import COMPACT, Compact
from fedecado.common.packed import NUMBERS, PackedReceiver, accepted_format
from fedecado.common.wire import BulkChunk, parse_worker_message
from fedecado.common.wire import encode as messages
from fedecado.v1.session_pb2 import WorkerMessage
from fedecado.v1.transfer_pb2 import Trailer

LAYOUT = Layout((Entry("x", (2 * BLOCK + 9,)), Entry("mean", (4,), "buffer")))
START: Vector = np.linspace(-1, 1, LAYOUT.size, dtype=np.float32)
END: Vector = (START + 1e-3 * np.sin(np.arange(LAYOUT.size))).astype(np.float32)
formats = pytest.mark.parametrize("format", COMPACT)


def receive(receiver: PackedReceiver, payload: bytes, step: int = 1000) -> Vector:
    for at in range(0, len(payload), step):
        receiver.add(BulkChunk(at, memoryview(payload)[at : at + step]))
    return receiver.finish(Trailer(length=len(payload), crc32=zlib.crc32(payload)))


@formats
def test_an_update_comes_through_the_wire_as_it_was_meant(format: Compact) -> None:
    packed = encode(format, LAYOUT, START, END)
    receiver = PackedReceiver(format, LAYOUT, START)
    *chunks, last = map(parse_worker_message, messages(packed.payload))
    for chunk in chunks:
        assert isinstance(chunk, BulkChunk)
        receiver.add(chunk)
    assert isinstance(last, WorkerMessage)
    vector = receiver.finish(last.trailer)
    np.testing.assert_array_equal(vector, decode(packed, LAYOUT, START))
    assert receiver.crc == zlib.crc32(vector.tobytes())
    assert receiver.square == pytest.approx(float(np.dot(vector, vector)), rel=1e-5)


@given(st.sampled_from(COMPACT), st.integers(1, 5000))
def test_chunks_may_end_anywhere_and_go_to_the_place_that_is_given(format: Compact, step: int) -> None:
    packed, out = encode(format, LAYOUT, START, END), np.empty(LAYOUT.size, np.float32)
    receiver = PackedReceiver(format, LAYOUT, START, out)
    assert receive(receiver, packed.payload.tobytes(), step) is out
    np.testing.assert_array_equal(out, decode(packed, LAYOUT, START))
    assert receiver.received == out.nbytes
    assert receiver.crc == zlib.crc32(out.tobytes())


@formats
def test_damage_is_found(format: Compact) -> None:
    payload = bytearray(encode(format, LAYOUT, START, END).payload.tobytes())
    good = zlib.crc32(payload)
    payload[-1] ^= 1
    receiver = PackedReceiver(format, LAYOUT, START)
    receiver.add(BulkChunk(0, memoryview(payload)))
    with pytest.raises(ChecksumError, match="send the vector again"):
        receiver.finish(Trailer(length=len(payload), crc32=good))


@formats
@pytest.mark.parametrize("missing", [1, 3, BLOCK])
def test_a_stream_cut_short_is_found(format: Compact, missing: int) -> None:
    payload = encode(format, LAYOUT, START, END).payload.tobytes()[:-missing]
    with pytest.raises(ChecksumError, match=f"{len(payload)} of {len(payload) + missing} have arrived"):
        receive(PackedReceiver(format, LAYOUT, START), payload)


@formats
def test_chunks_that_are_not_next_or_too_many_are_refused(format: Compact) -> None:
    payload = memoryview(encode(format, LAYOUT, START, END).payload.tobytes() + b"1234")
    wrong = [BulkChunk(1, payload[:10]), BulkChunk(0, payload), BulkChunk(0, payload[:0])]
    for chunk in wrong:
        with pytest.raises(ProtocolError, match="where byte 0 of"):
            PackedReceiver(format, LAYOUT, START).add(chunk)


@pytest.mark.parametrize(
    ("format", "number"),
    [
        ("float16", np.array([0x7C00], "<u2")),
        ("bfloat16", np.array([0xFF80], "<u2")),
        ("int8", np.array([np.nan], "<f4")),
        ("int8", np.array([3e38], "<f4")),
    ],
)
def test_what_leads_to_no_number_is_refused(format: Compact, number: Vector) -> None:
    packed: Packed = encode(format, LAYOUT, START, END)
    packed.payload[: number.nbytes] = number.view(np.uint8)
    with pytest.raises(NonFiniteError, match="of the vector is"):
        receive(PackedReceiver(format, LAYOUT, START), packed.payload.tobytes())


def test_a_buffer_that_is_no_number_is_refused() -> None:
    end = END.copy()
    end[-2] = np.inf
    with pytest.raises(NonFiniteError, match=f"number {LAYOUT.size - 2} of the vector is inf"):
        receive(PackedReceiver("int8", LAYOUT, START), encode("int8", LAYOUT, START, end).payload.tobytes())


def test_formats_that_are_not_accepted_are_refused_with_what_to_do() -> None:
    assert accepted_format(0, ()) is None, "full precision always is"
    assert [accepted_format(NUMBERS[name], COMPACT) for name in COMPACT] == list(COMPACT)
    with pytest.raises(
        FormatError, match=r"came as int8, .* takes float16: give the worker another upload.f"
    ):
        accepted_format(NUMBERS["int8"], ("float16",))
    with pytest.raises(FormatError, match=r"came as format 77, .* takes none"):
        accepted_format(77, ())
