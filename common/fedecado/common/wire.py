"""Vectors on the wire: chunked, checked, and encoded once however many peers receive them.

The bulk of all traffic is one message, `Chunk`, in an envelope. This module writes and reads that
message's bytes itself, which saves two of three copies; what travels is ordinary protobuf that any
other implementation reads. All else goes through the generated classes. Nothing here does I/O.

Sending: `encode(vector)` for one receiver, `Frames(vector)` for many. Both give whole serialised
messages, which gRPC passes on as they are when `serialize_message` is the method's serializer.

Receiving: `parse_worker_message` and its siblings turn bytes into a message, or into a `BulkChunk`
that points into those bytes; a `Receiver` collects chunks into one vector. A server may register
the parser as the method's deserializer. A client had better register none and parse the raw bytes
itself: grpc.aio logs what a client's deserializer raises and hands out None instead.
"""

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar, final

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError, Message

from fedecado.common.checksum import Checksum
from fedecado.common.errors import ChecksumError, LayoutError, NonFiniteError, ProtocolError
from fedecado.common.layout import DType, Vector
from fedecado.v1.admin_pb2 import GetModelResponse
from fedecado.v1.session_pb2 import CoordinatorMessage, WorkerMessage
from fedecado.v1.transfer_pb2 import Trailer

CHUNK_BYTES: Final = 1 << 20
KEPT_MESSAGES: Final = 8
"""Encoded messages that wait for peers which are a little behind."""
COPIED_BYTES: Final = 1 << 18
"""Bytes that are copied at once to where they stay.

So few the C library has the processor move past its caches, which what comes in next has for itself then;
what is longer than a core's own cache, as a chunk may be, goes through all of them.
"""

Envelope = TypeVar("Envelope", WorkerMessage, CoordinatorMessage, GetModelResponse)
Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.number[Any]]

_LITTLE: Final = sys.byteorder == "little"

# Tag bytes: field number << 3 | wire type (0 varint, 2 length-delimited).
_ENVELOPE_CHUNK: Final = 1 << 3 | 2
_CHUNK_OFFSET: Final = 1 << 3 | 0
_CHUNK_DATA: Final = 2 << 3 | 2


class BulkChunk(NamedTuple):
    """A chunk still lying in the bytes of its message."""

    offset: int
    data: memoryview


def encode(vector: Vector | Bytes, divisor: float = 1.0) -> Iterator[bytes]:
    """The messages of a transfer, serialised: chunks, then the trailer.

    They are valid in every envelope, as all give `chunk` and `trailer` the same numbers. `vector`
    must not change until the last message is taken. What is sent are its numbers over `divisor`, without a
    second vector of them. Bytes are a vector in a compact format.
    """
    return iter(Frames(vector, kept=0, divisor=divisor))


@final
class Frames:
    """A vector as messages, each made once for all peers that are sent them abreast, by one thread.

    The `kept` messages that were made last wait for the next peer while there is one that reads; a peer that
    is further behind has its own made, which takes one copy. So a model of any size takes a few messages of
    memory however many peers there are, and they are read while they are in cache. `vector` must not
    change meanwhile.
    """

    __slots__ = (
        "_checksum",
        "_divisor",
        "_kept",
        "_peers",
        "_recent",
        "_starts",
        "_step",
        "_summed",
        "_vector",
        "nbytes",
    )

    def __init__(self, vector: Vector | Bytes, *, kept: int = KEPT_MESSAGES, divisor: float = 1.0) -> None:
        if vector.dtype != np.uint8:
            _check_vector(vector)
        self._vector, self.nbytes, self._kept, self._divisor = vector, vector.nbytes, kept, divisor
        self._step = CHUNK_BYTES // vector.itemsize
        self._starts = range(0, vector.size, self._step)
        self._recent: dict[int, bytes] = {}
        self._peers = 0
        self._checksum, self._summed = Checksum(), 0

    def __iter__(self) -> Iterator[bytes]:
        self._peers += 1
        try:
            for number, start in enumerate(self._starts):
                yield self._recent.get(number) or self._make(number, start)
            trailer = Trailer(length=self.nbytes, crc32=self._checksum.value)
            yield CoordinatorMessage(trailer=trailer).SerializeToString()
        finally:
            self._peers -= 1
            if not self._peers and len(self._starts) > 1:
                self._recent.clear()

    def _make(self, number: int, start: int) -> bytes:
        part = self._vector[start : start + self._step]
        if self._divisor != 1.0:
            part = part / part.dtype.type(self._divisor)
        data = _as_bytes(to_little_endian(part)).data
        if number == self._summed:  # whoever comes first sums; nobody comes to the trailer before that
            self._checksum.update(data)
            self._summed += 1
        message = b"".join((_chunk_prefix(start * part.itemsize, len(data)), data))
        if self._kept:
            self._recent[number] = message
            if len(self._recent) > self._kept:
                del self._recent[next(iter(self._recent))]
        return message


@final
class Receiver:
    """Collects the chunks of one transfer into a vector that is allocated once.

    `expected_bytes` is what the header announced. More than `max_bytes`, which the caller knows from
    its layout, is refused before anything is allocated. `out` takes the place of a new vector, for
    instance a mapped file. `take` copies whole numbers to their place and gives their squared length, for
    those who know a quicker way. After an error the transfer is lost, and the receiver with it.
    """

    def __init__(
        self,
        expected_bytes: int,
        dtype: DType = "float32",
        *,
        max_bytes: int,
        out: Vector | None = None,
        take: Callable[[memoryview, Bytes], float] | None = None,
    ) -> None:
        kind = np.dtype(dtype)
        if expected_bytes > max_bytes:
            raise ProtocolError(
                f"the peer announced {expected_bytes} bytes where at most {max_bytes} fit the layout; "
                "all peers must build the same model"
            )
        if expected_bytes % kind.itemsize:
            raise ProtocolError(f"the peer announced {expected_bytes} bytes, no whole number of {dtype}")
        if out is not None:
            _check_out(out, expected_bytes, dtype)
        self._vector: Vector = np.empty(expected_bytes // kind.itemsize, kind) if out is None else out
        self._bytes = _as_bytes(self._vector)
        self._wire: Vector = self._vector if _LITTLE else self._vector.view(kind.newbyteorder("<"))
        self._checksum, self._take = Checksum(), take
        self._received = 0
        self._square = 0.0
        self._finished = False

    @property
    def received(self) -> int:
        """Bytes taken in so far."""
        return self._received

    @property
    def square(self) -> float:
        """Squared length of what has arrived; infinite if it is beyond the dtype."""
        return self._square

    def add(self, chunk: BulkChunk) -> None:
        """Write a chunk to its place; raise unless it is the next one, fits and is finite."""
        self._check_order(chunk)
        data, start, stop = chunk.data, self._received, self._received + len(chunk.data)
        place, size = self._bytes[start:stop], self._wire.itemsize
        square = math.nan
        if self._take is None or start % size or len(data) % size:
            _copy(data, place)
        else:
            square = self._take(data, place)
        if not math.isfinite(square):  # not taken yet, or something is wrong: what?
            square = finite_square(self._completed(data, start), start // size)
        self._square += square
        self._checksum.update(data)
        self._received = stop

    def finish(self, trailer: Trailer) -> Vector:
        """The vector, in the host's byte order; raise if any of it is missing or damaged."""
        if self._finished:
            raise ProtocolError("a second trailer for the same transfer")
        if self._received < self._bytes.size:
            raise ChecksumError(f"the transfer ends after {self._received} of {self._bytes.size} bytes")
        if trailer.length != self._received:
            raise ChecksumError(f"the trailer counts {trailer.length} bytes, {self._received} have arrived")
        if trailer.crc32 != self._checksum.value:
            raise ChecksumError(
                f"CRC-32 of {self._received} bytes is {self._checksum.value:08x}, "
                f"the trailer says {trailer.crc32:08x}; send the vector again"
            )
        self._finished = True
        if not _LITTLE:
            self._vector.byteswap(inplace=True)
        return self._vector

    def _check_order(self, chunk: BulkChunk) -> None:
        if self._finished:
            raise ProtocolError(f"a chunk at byte {chunk.offset} after the trailer")
        if not chunk.data:
            raise ProtocolError(f"an empty chunk at byte {chunk.offset}")
        if chunk.offset != self._received:
            what = "repeated" if chunk.offset < self._received else "missing"
            raise ProtocolError(
                f"a chunk is {what}: one at byte {chunk.offset} came where byte {self._received} is next"
            )
        if chunk.offset + len(chunk.data) > self._bytes.size:
            raise ProtocolError(
                f"a chunk of {len(chunk.data)} bytes at byte {chunk.offset} runs past the announced "
                f"{self._bytes.size} bytes"
            )

    def _completed(self, data: memoryview, start: int) -> Vector:
        """The numbers that these bytes, which are in their place from `start` on, complete.

        It is those in cache, as they came, unless one of them is divided.
        """
        numbers, size = self._wire, self._wire.itemsize
        if start % size or len(data) % size:
            return numbers[start // size : (start + len(data)) // size]
        return np.frombuffer(data, numbers.dtype)


def _copy(data: memoryview, place: Bytes) -> None:
    for at in range(0, len(data), COPIED_BYTES):
        place[at : at + COPIED_BYTES] = data[at : at + COPIED_BYTES]


def finite_square(numbers: Vector, first: int = 0) -> float:
    """Squared length of numbers that are all finite, infinite if it is beyond their dtype; else it raises.

    The first of them is number `first` of its vector.
    """
    # Dot would copy numbers that begin at an odd address, and warn of overflow.
    square = float(np.vdot(numbers, numbers))
    if math.isfinite(square):  # which proves every number finite
        return square
    _require_finite(numbers, first)
    return math.inf


def _require_finite(numbers: Vector, first: int) -> None:
    finite = np.isfinite(numbers)
    if not finite.all():
        at = int(finite.argmin())
        raise NonFiniteError(
            f"number {first + at} of the vector is {numbers[at]}; lower the learning rate or clip gradients"
        )


def from_wire(data: bytes, dtype: DType) -> Vector:
    """The numbers that came as these bytes, in the host's byte order and to read only."""
    numbers: Vector = np.frombuffer(data, dtype if _LITTLE else np.dtype(dtype).newbyteorder("<"))
    return numbers if _LITTLE else numbers.astype(dtype)


def serialize_message(message: Message | bytes) -> bytes:
    """A serializer for gRPC that takes messages, and bytes that are one already."""
    return message if isinstance(message, bytes) else message.SerializeToString()


def parse_worker_message(data: bytes) -> WorkerMessage | BulkChunk:
    """A worker's message; a chunk is not copied out of `data`."""
    return _parse(data, WorkerMessage)


def parse_coordinator_message(data: bytes) -> CoordinatorMessage | BulkChunk:
    """A coordinator's message; a chunk is not copied out of `data`."""
    return _parse(data, CoordinatorMessage)


def parse_model_response(data: bytes) -> GetModelResponse | BulkChunk:
    """A piece of a model download; a chunk is not copied out of `data`."""
    return _parse(data, GetModelResponse)


def _parse(data: bytes, envelope: type[Envelope]) -> Envelope | BulkChunk:
    chunk = _parse_chunk(data)
    if chunk is not None:
        return chunk
    message = envelope()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise ProtocolError(f"{len(data)} bytes that are no {envelope.__name__}: {error}") from error
    if message.WhichOneof("content") == "chunk":
        return BulkChunk(message.chunk.offset, memoryview(message.chunk.data))
    return message


def _parse_chunk(data: bytes) -> BulkChunk | None:
    """A chunk in the form that serializers write; None for all else, which protobuf must judge."""
    try:
        if data[0] != _ENVELOPE_CHUNK:
            return None
        length, at = _varint(data, 1)
        if at + length != len(data):
            return None
        offset = 0
        if data[at] == _CHUNK_OFFSET:
            offset, at = _varint(data, at + 1)
        if data[at] != _CHUNK_DATA:
            return None
        length, at = _varint(data, at + 1)
    except (IndexError, ValueError):
        return None
    return BulkChunk(offset, memoryview(data)[at:]) if at + length == len(data) else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The shortest-form base-128 number at `at`, and where it ends."""
    value = 0
    for shift in range(0, 63, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                break
            return value, at
    raise ValueError("not in shortest form, or longer than 63 bits")


def to_varint(value: int) -> bytes:
    """A base-128 number in its shortest form."""
    if value <= 0x7F:
        return bytes((value,))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _chunk_prefix(offset: int, length: int) -> bytes:
    """What stands before a chunk's data in its envelope. Like protobuf, a zero offset is left out."""
    place = bytes((_CHUNK_OFFSET,)) + to_varint(offset) if offset else b""
    inner = place + bytes((_CHUNK_DATA,)) + to_varint(length)
    return bytes((_ENVELOPE_CHUNK,)) + to_varint(len(inner) + length) + inner


def to_little_endian(vector: Numbers) -> Numbers:
    """The numbers as they travel; a copy only where the host has another byte order."""
    return vector if _LITTLE else vector.astype(vector.dtype.newbyteorder("<"))


def _as_bytes(vector: Numbers) -> Bytes:
    return vector.view(np.uint8)


def _check_vector(vector: Vector | Bytes) -> None:
    if vector.ndim != 1 or vector.dtype not in (np.float32, np.float64) or not vector.flags.c_contiguous:
        raise LayoutError(
            f"cannot send a {vector.dtype} array of shape {vector.shape} and strides {vector.strides}; "
            "give a contiguous vector of float32 or float64"
        )


def _check_out(out: Vector, expected_bytes: int, dtype: DType) -> None:
    _check_vector(out)
    if out.dtype != np.dtype(dtype) or out.nbytes != expected_bytes or not out.flags.writeable:
        raise LayoutError(
            f"cannot receive {expected_bytes} bytes of {dtype} into a vector of {out.size} {out.dtype}; "
            "give a writable vector of that size"
        )
