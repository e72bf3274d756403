"""The hand-written reader of chunks agrees with protobuf on every input."""

from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedecado.common.errors import ProtocolError
from fedecado.common.wire import (
    BulkChunk,
    parse_coordinator_message,
    parse_model_response,
    parse_worker_message,
    serialize_message,
)
from fedecado.v1.admin_pb2 import GetModelResponse, ModelHeader
from fedecado.v1.session_pb2 import Assign, CoordinatorMessage, Hello, Progress, Welcome, WorkerMessage
from fedecado.v1.transfer_pb2 import Chunk, Trailer

KINDS = [
    (parse_worker_message, WorkerMessage),
    (parse_coordinator_message, CoordinatorMessage),
    (parse_model_response, GetModelResponse),
]
UINT64 = st.integers(0, 2**64 - 1)
CONTENTS: dict[Any, list[dict[str, Any]]] = {
    WorkerMessage: [{"hello": Hello(worker_id="w", samples=3)}, {"progress": Progress(task_id=1, loss=0.5)}],
    CoordinatorMessage: [{"welcome": Welcome(run_id="r")}, {"assign": Assign(task_id=7, weight=1.5)}],
    GetModelResponse: [{"header": ModelHeader(run_id="r")}],
}


def varint(value: int, padding: int = 0) -> bytes:
    """A base-128 number, on request longer than it needs to be."""
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)] + [0] * padding
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])


def field(number: int, wire_type: int, payload: bytes) -> bytes:
    return varint(number << 3 | wire_type) + payload


# Numbers wider than 64 bits and padded ones: protobuf takes some, cuts some and refuses others.
paddings = st.sampled_from([0, 0, 0, 1, 2, 4, 6, 9])
numbers = st.builds(varint, UINT64 | st.integers(0, 300) | st.integers(2**64, 2**70 - 1), paddings)
blobs = st.binary(max_size=40)
offset_like = st.builds(lambda number, value: field(number, 0, value), st.sampled_from([1, 1, 3]), numbers)
data_like = st.builds(
    lambda number, data, pad: field(number, 2, varint(len(data), pad) + data),
    st.sampled_from([2, 2, 1, 3]),
    blobs,
    paddings,
)
chunk_bodies = st.one_of(
    st.tuples(offset_like, data_like).map(b"".join),
    st.lists(offset_like | data_like, max_size=4).map(b"".join),
)
# Near misses of a chunk: right tags, wrong order, repeated fields, odd lengths, a few bytes too many.
near_chunks = st.builds(
    lambda body, slack, pad, tail: field(1, 2, varint(max(len(body) + slack, 0), pad) + body) + tail,
    chunk_bodies,
    st.sampled_from([0, 0, 0, 0, -1, 1, 5]),
    paddings,
    st.one_of(st.just(b""), st.just(b""), offset_like, data_like, blobs),
)


def assert_same_as_protobuf(parse: Any, envelope: Any, data: bytes) -> None:
    try:
        plain = envelope.FromString(data)
    except DecodeError:
        with pytest.raises(ProtocolError, match=f"no {envelope.__name__}"):
            parse(data)
        return
    parsed = parse(data)
    if plain.WhichOneof("content") == "chunk":
        assert isinstance(parsed, BulkChunk)
        assert (parsed.offset, bytes(parsed.data)) == (plain.chunk.offset, plain.chunk.data)
    else:
        assert parsed == plain


@pytest.mark.parametrize(("parse", "envelope"), KINDS)
@settings(max_examples=300)
@given(data=st.one_of(near_chunks, near_chunks, st.binary(max_size=60)))
@example(data=b"")
@example(data=b"\x0a\x00")
@example(data=b"\x0a\x02\x08\x05")
@example(data=b"\x0a\x04\x12\x02ab\x0a\x04\x12\x02cd")
def test_any_bytes_parse_as_protobuf_parses_them(parse: Any, envelope: Any, data: bytes) -> None:
    assert_same_as_protobuf(parse, envelope, data)


@pytest.mark.parametrize(("parse", "envelope"), KINDS)
@given(offset=UINT64, payload=st.binary(max_size=300), cut=st.integers(0, 20))
def test_chunks_whole_and_cut_short_parse_as_protobuf_parses_them(
    parse: Any, envelope: Any, offset: int, payload: bytes, cut: int
) -> None:
    data = envelope(chunk=Chunk(offset=offset, data=payload)).SerializeToString()
    assert_same_as_protobuf(parse, envelope, data)
    assert_same_as_protobuf(parse, envelope, data[: max(len(data) - cut, 0)])


@pytest.mark.parametrize(("parse", "envelope"), KINDS)
def test_every_other_message_comes_back_as_it_was(parse: Any, envelope: Any) -> None:
    for content in [*CONTENTS[envelope], {"trailer": Trailer(length=9, crc32=0xFFFFFFFF)}, {}]:
        message = envelope(**content)
        assert parse(serialize_message(message)) == message


def test_a_chunk_is_a_view_of_the_bytes_it_came_in() -> None:
    data = WorkerMessage(chunk=Chunk(offset=1 << 40, data=bytes(1000))).SerializeToString()
    chunk = parse_worker_message(data)
    assert isinstance(chunk, BulkChunk)
    assert chunk.data.obj is data
    assert np.shares_memory(np.frombuffer(chunk.data, np.uint8), np.frombuffer(data, np.uint8))


def test_a_message_of_a_newer_protocol_has_no_content() -> None:
    """Receivers ignore it, so that a minor version can add messages."""
    message = parse_worker_message(field(15, 2, b"\x03new"))
    assert isinstance(message, WorkerMessage)
    assert message.WhichOneof("content") is None


def test_serialised_messages_pass_the_serializer_untouched() -> None:
    data = WorkerMessage(hello=Hello(worker_id="w")).SerializeToString()
    assert serialize_message(data) is data
