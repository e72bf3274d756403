"""Whatever bytes come: a message, or one of our errors; never more memory than the layout has."""

import json
from contextlib import suppress

import pytest
from google.protobuf.message import DecodeError
from hostile_messages import LAYOUT, STATE, frames, fuzz
from hypothesis import given
from hypothesis import strategies as st

from fedecado.common.errors import FedecadoError, LayoutError, ProtocolError
from fedecado.common.layout import Layout
from fedecado.common.wire import BulkChunk, Receiver, parse_coordinator_message, parse_worker_message
from fedecado.v1 import session_pb2 as pb
from fedecado.v1.transfer_pb2 import Trailer


@fuzz(0.25)
@given(frames(pb.WorkerMessage))
def test_bytes_mean_what_protobuf_says_they_mean(data: bytes) -> None:
    try:
        expected = pb.WorkerMessage.FromString(data)
    except DecodeError:
        with pytest.raises(ProtocolError):
            parse_worker_message(data)
        return
    message = parse_worker_message(data)
    if isinstance(message, BulkChunk):
        assert (message.offset, bytes(message.data)) == (expected.chunk.offset, expected.chunk.data)
    else:
        assert message.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)


@fuzz(0.1)
@given(frames(pb.CoordinatorMessage))
def test_a_worker_parses_bytes_or_refuses_them(data: bytes) -> None:
    with suppress(ProtocolError):
        parse_coordinator_message(data)


chunks = st.builds(
    lambda offset, data: BulkChunk(offset, memoryview(data)),
    st.sampled_from([0, 4, 8, 12, 28]) | st.integers(0, 1 << 63),
    st.sampled_from([STATE.tobytes(), STATE.tobytes()[:4], STATE.tobytes()[4:8]]) | st.binary(max_size=40),
)


@fuzz(0.15)
@given(st.integers(0, 64), st.lists(chunks, max_size=6), st.integers(0, 40), st.integers(0, (1 << 32) - 1))
def test_a_receiver_gives_a_finite_vector_of_the_announced_length_or_an_error(
    size: int, pieces: list[BulkChunk], length: int, crc: int
) -> None:
    try:
        receiver = Receiver(size, LAYOUT.dtype, max_bytes=LAYOUT.nbytes)
        for piece in pieces:
            receiver.add(piece)
        vector = receiver.finish(Trailer(length=length, crc32=crc))
    except FedecadoError:
        return
    assert vector.nbytes == size <= LAYOUT.nbytes


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("parameter"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["entries", "dtype"]), inner),
    max_leaves=12,
)
layouts = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["float32", "float64", "int8", None, [1]]),
        "entries": st.lists(st.tuples(st.text(max_size=3), st.lists(values, max_size=3), values)) | values,
    }
)


@fuzz(0.1)
@given((layouts | values).map(json.dumps) | st.text(max_size=60))
def test_a_layout_is_one_or_is_refused(text: str) -> None:
    try:
        layout = Layout.from_json(text)
    except LayoutError:
        return
    assert layout.parameters > 0
    assert Layout.from_json(layout.to_json()).digest == layout.digest
