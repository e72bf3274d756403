"""The inbox: which messages amount to what, and what is wrong with the rest."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.common import formats
from fedecado.common.enclosed import enclose
from fedecado.common.errors import ChecksumError, FormatError, LayoutError, NonFiniteError, ProtocolError
from fedecado.common.layout import Layout, Vector
from fedecado.common.names import COMPACT, Compact
from fedecado.common.packed import NUMBERS
from fedecado.common.wire import BulkChunk, Bytes, encode, parse_worker_message
from fedecado.server.coordinator.inbox import Arrival, Inbox, Received, Spoiled, Unwanted
from fedecado.server.coordinator.quotas import Quotas
from fedecado.server.store.vault import Vault
from fedecado.v1 import session_pb2 as pb
from fedecado.v1.transfer_pb2 import Enclosed, Trailer

LAYOUT = Layout.flat(600_000)


def header(**changes: object) -> pb.WorkerMessage:
    fields = {"task_id": 7, "layout_digest": LAYOUT.digest, "state_bytes": LAYOUT.nbytes, **changes}
    return pb.WorkerMessage(update=pb.Update(**fields))  # type: ignore[arg-type]  # tests pass all kinds


def transfer(vector: Vector) -> Iterator[pb.WorkerMessage | BulkChunk]:
    return map(parse_worker_message, encode(vector))


def arrivals(inbox: Inbox, *messages: pb.WorkerMessage | BulkChunk) -> list[Arrival]:
    return [arrival for message in messages if (arrival := inbox.take(message)) is not None]


@pytest.fixture
def inbox() -> Inbox:
    return Inbox(lambda: LAYOUT)


@pytest.fixture
def vector() -> Vector:
    return np.arange(LAYOUT.size, dtype=np.float32)


def test_a_transfer_arrives_once_it_is_whole(inbox: Inbox, vector: Vector) -> None:
    first, *others = transfer(vector)
    assert arrivals(inbox, header(), first) == []
    assert inbox.receiving
    (received,) = arrivals(inbox, *others)
    assert isinstance(received, Received)
    assert received.header.task_id == 7  # type: ignore[union-attr]  # it is an update
    np.testing.assert_array_equal(received.vector, vector)
    assert not inbox.receiving


def test_control_messages_may_stand_between_chunks(inbox: Inbox, vector: Vector) -> None:
    first, *others = transfer(vector)
    progress = pb.WorkerMessage(progress=pb.Progress(task_id=7))
    kinds = [type(a) for a in arrivals(inbox, header(), first, progress, *others)]
    assert kinds == [pb.Progress, Received]


def test_a_new_header_discards_the_unfinished_transfer_before_it(inbox: Inbox, vector: Vector) -> None:
    first, *others = transfer(vector)
    found = arrivals(inbox, header(), first, header(task_id=8), first, *others)
    assert [a.header.task_id for a in found if isinstance(a, Received)] == [8]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"layout_digest": "f" * 64}, LayoutError),
        ({"state_bytes": LAYOUT.nbytes - 4}, LayoutError),
        ({"state_bytes": 1 << 60}, LayoutError),
    ],
)
def test_a_transfer_that_does_not_fit_is_passed_over_and_reported(
    inbox: Inbox, vector: Vector, changes: dict[str, object], error: type[Exception]
) -> None:
    (spoiled,) = arrivals(inbox, header(**changes), *transfer(vector))
    assert isinstance(spoiled, Spoiled) and isinstance(spoiled.error, error)
    (received,) = arrivals(inbox, header(), *transfer(vector))
    assert isinstance(received, Received), "the session goes on"


def test_a_vector_with_nan_is_spoiled(inbox: Inbox, vector: Vector) -> None:
    vector[5] = np.nan
    (spoiled,) = arrivals(inbox, header(), *transfer(vector))
    assert isinstance(spoiled, Spoiled) and isinstance(spoiled.error, NonFiniteError)


def test_a_transfer_cut_short_is_damaged(inbox: Inbox, vector: Vector) -> None:
    *_, trailer = transfer(vector)
    (spoiled,) = arrivals(inbox, header(), trailer)
    assert isinstance(spoiled, Spoiled) and isinstance(spoiled.error, ChecksumError)


def packed(format: Compact, start: Vector, end: Vector) -> list[pb.WorkerMessage | BulkChunk]:
    """The messages of an update in a compact format."""
    payload = formats.encode(format, LAYOUT, start, end).payload
    first = header(format=NUMBERS[format], state_bytes=payload.nbytes)
    return [first, *map(parse_worker_message, encode(payload))]


@pytest.mark.parametrize("format", COMPACT)
def test_a_compact_update_becomes_a_state_as_any_other(format: Compact, vector: Vector) -> None:
    end = vector + np.float32(0.5)
    inbox = Inbox(lambda: LAYOUT, start=lambda header: vector)
    (received,) = arrivals(inbox, *packed(format, vector, end))
    assert isinstance(received, Received)
    wanted = formats.decode(formats.encode(format, LAYOUT, vector, end), LAYOUT, vector)
    np.testing.assert_array_equal(received.vector, wanted)
    assert received.square == pytest.approx(float(np.dot(wanted, wanted)), rel=1e-4)


@pytest.mark.parametrize("format", COMPACT)
def test_a_compact_update_lands_on_disk_as_the_state_it_leads_to(
    tmp_path: Path, format: Compact, vector: Vector
) -> None:
    layout = Layout.flat(LAYOUT.size * 3)  # several of the pieces that are written at once
    start: Vector = np.tile(vector, 3)
    payload = formats.encode(format, layout, start, start + np.float32(0.25)).payload
    vault = Vault(tmp_path)
    land = partial(vault.land, "update")
    inbox = Inbox(lambda: layout, start=lambda header: start, land=land)
    first = header(layout_digest=layout.digest, format=NUMBERS[format], state_bytes=payload.nbytes)
    (received,) = arrivals(inbox, first, *map(parse_worker_message, encode(payload)))
    assert isinstance(received, Received) and received.landing is not None
    assert received.landing.finish()
    place = vault.keep(received.landing)
    vault.verify(place)
    np.testing.assert_array_equal(vault.map(place), received.vector)
    vault.close()


@pytest.mark.parametrize(
    ("accepted", "number", "said"),
    [
        (
            ("float16",),
            NUMBERS["int8"],
            r"came as int8, .* takes float16: give the worker another upload.format",
        ),
        ((), NUMBERS["float16"], r"came as float16, .* takes none"),
        (COMPACT, 99, r"came as format 99, .* takes float16, bfloat16, int8"),
    ],
)
def test_a_format_that_is_not_taken_is_refused_with_what_to_do(
    vector: Vector, accepted: tuple[Compact, ...], number: int, said: str
) -> None:
    inbox = Inbox(lambda: LAYOUT, start=lambda header: vector, formats=accepted)
    (spoiled,) = arrivals(inbox, header(format=number), *transfer(vector))
    assert isinstance(spoiled, Spoiled) and isinstance(spoiled.error, FormatError)
    assert re.search(said, str(spoiled.error))
    (received,) = arrivals(inbox, header(), *transfer(vector))
    assert isinstance(received, Received), "full precision always is"


def test_a_compact_update_of_another_length_or_without_a_start_is_not_taken(vector: Vector) -> None:
    inbox = Inbox(lambda: LAYOUT, start=lambda header: vector)
    (spoiled,) = arrivals(inbox, header(format=NUMBERS["int8"]), *transfer(vector))
    assert isinstance(spoiled, Spoiled) and isinstance(spoiled.error, LayoutError)
    (unwanted,) = arrivals(Inbox(lambda: LAYOUT), *packed("int8", vector, vector))
    assert isinstance(unwanted, Unwanted)


@pytest.mark.parametrize("format", COMPACT)
def test_a_compact_update_that_is_cut_short_or_damaged_is_to_be_sent_again(
    format: Compact, vector: Vector
) -> None:
    inbox = Inbox(lambda: LAYOUT, start=lambda header: vector)
    first, chunk, *others = packed(format, vector, vector + 1)
    assert isinstance(chunk, BulkChunk)
    broken = bytearray(chunk.data)
    broken[-1] ^= 1
    for messages in (
        [BulkChunk(0, chunk.data[:1000]), others[-1]],
        [BulkChunk(0, memoryview(broken)), *others],
    ):
        (spoiled,) = arrivals(inbox, first, *messages)
        assert isinstance(spoiled, Spoiled) and isinstance(spoiled.error, ProtocolError)
    (received,) = arrivals(inbox, first, chunk, *others)
    assert isinstance(received, Received)


@pytest.mark.parametrize(
    "message",
    [
        BulkChunk(0, memoryview(b"1234")),
        pb.WorkerMessage(trailer=Trailer(length=4)),
        pb.WorkerMessage(hello=pb.Hello()),
    ],
)
def test_what_stands_where_it_must_not_ends_the_session(
    inbox: Inbox, message: pb.WorkerMessage | BulkChunk
) -> None:
    with pytest.raises(ProtocolError):
        inbox.take(message)


def test_a_message_of_a_later_protocol_is_ignored(inbox: Inbox) -> None:
    assert inbox.take(pb.WorkerMessage()) is None


def test_nothing_fits_before_the_run_has_a_layout(vector: Vector) -> None:
    (spoiled,) = arrivals(Inbox(lambda: None), header(), *transfer(vector))
    assert isinstance(spoiled, Spoiled) and "none yet" in str(spoiled.error)


SMALL = Layout.flat(8)


def enclosing(vector: Vector | Bytes, **changes: object) -> pb.WorkerMessage:
    """An update of the small layout, in one message."""
    fields = {"layout_digest": SMALL.digest, "state_bytes": SMALL.nbytes, "state": enclose(vector)}
    return header(**{**fields, **changes})


def cut(message: pb.WorkerMessage, to: int) -> pb.WorkerMessage:
    message.update.state.data = message.update.state.data[:to]
    return message


def test_an_enclosed_update_arrives_with_its_header() -> None:
    inbox, vector = Inbox(lambda: SMALL), np.arange(8, dtype=np.float32)
    (received,) = arrivals(inbox, enclosing(vector))
    assert isinstance(received, Received) and not inbox.receiving
    np.testing.assert_array_equal(received.vector, vector)
    assert received.square == float(np.dot(vector, vector))


@pytest.mark.parametrize("format", COMPACT)
def test_an_enclosed_update_may_be_compact(format: Compact) -> None:
    start = np.arange(8, dtype=np.float32)
    payload = formats.encode(format, SMALL, start, start + 1).payload
    inbox = Inbox(lambda: SMALL, start=lambda header: start)
    message = enclosing(payload, format=NUMBERS[format], state_bytes=payload.nbytes)
    (received,) = arrivals(inbox, message)
    assert isinstance(received, Received)
    wanted = formats.decode(formats.encode(format, SMALL, start, start + 1), SMALL, start)
    np.testing.assert_array_equal(received.vector, wanted)


ONES, MANY = np.ones(8, np.float32), np.ones(9, np.float32)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (enclosing(ONES, state=pb.Update().state), ProtocolError),
        (cut(enclosing(ONES), 0), ProtocolError),
        (cut(enclosing(ONES), 28), ProtocolError),
        (cut(enclosing(ONES), 31), ProtocolError),
        (enclosing(MANY), ProtocolError),
        (enclosing(MANY, state_bytes=MANY.nbytes), LayoutError),
        (enclosing(ONES, state_bytes=1 << 60), LayoutError),
        (enclosing(ONES, layout_digest="?"), LayoutError),
        (enclosing(ONES, format=99), FormatError),
        (enclosing(np.full(8, np.nan, np.float32)), NonFiniteError),
        (enclosing(np.full(8, -np.inf, np.float32)), NonFiniteError),
        (enclosing(ONES, state=Enclosed(data=ONES.tobytes(), crc32=1)), ChecksumError),
    ],
)
def test_a_bad_enclosed_update_is_reported_and_the_session_goes_on(
    message: pb.WorkerMessage, error: type[Exception]
) -> None:
    quotas = Quotas()
    inbox = Inbox(lambda: SMALL, quotas=quotas)
    (spoiled,) = arrivals(inbox, message)
    assert isinstance(spoiled, Spoiled) and isinstance(spoiled.error, error)
    assert not inbox.receiving and not quotas.memory
    (received,) = arrivals(inbox, enclosing(ONES))
    assert isinstance(received, Received)


def test_an_enclosed_update_that_nobody_wants_is_passed_over() -> None:
    (unwanted,) = arrivals(Inbox(lambda: SMALL, wanted=lambda header: False), enclosing(ONES))
    assert isinstance(unwanted, Unwanted)


def test_chunks_after_an_enclosed_vector_end_the_session() -> None:
    inbox = Inbox(lambda: SMALL)
    inbox.take(enclosing(ONES))
    with pytest.raises(ProtocolError, match="without a header"):
        inbox.take(next(transfer(ONES)))


PIECES = (
    enclosing(ONES),
    cut(enclosing(ONES), 16),
    pb.WorkerMessage(update=pb.Update(task_id=1, layout_digest=SMALL.digest, state_bytes=SMALL.nbytes)),
    pb.WorkerMessage(update=pb.Update(task_id=2, layout_digest="?", state_bytes=3)),
    *transfer(np.ones(8, np.float32)),
    *(BulkChunk(16, memoryview(bytes(16))), BulkChunk(0, memoryview(b""))),
    *(pb.WorkerMessage(progress=pb.Progress()), pb.WorkerMessage(bye=pb.WorkerBye()), pb.WorkerMessage()),
)


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_whatever_comes_is_an_arrival_or_a_protocol_error(
    messages: list[pb.WorkerMessage | BulkChunk],
) -> None:
    inbox = Inbox(lambda: SMALL)
    for message in messages:
        try:
            arrival = inbox.take(message)
        except ProtocolError:
            assert not inbox.receiving, "only what stands outside a transfer ends the session"
        else:
            if isinstance(arrival, Received):
                assert arrival.vector.tolist() == [1.0] * 8
