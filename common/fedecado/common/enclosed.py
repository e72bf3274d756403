"""Short vectors within the header that announces them: chunk and trailer would cost more than they carry.

Only for peers that speak version 1.2 of the protocol. What is enclosed is checked as a transfer is, but all
at once and where it lies: for a short vector the steps of a `Receiver` cost several times what they look at.
"""

import struct
from functools import lru_cache
from itertools import chain
from typing import Final

import numpy as np
from google.protobuf.message import Message

from fedecado.common.checksum import crc32
from fedecado.common.errors import ChecksumError, ProtocolError
from fedecado.common.layout import DType, Vector
from fedecado.common.wire import BulkChunk, Bytes, finite_square, from_wire, to_little_endian, to_varint
from fedecado.v1.session_pb2 import ProtocolVersion
from fedecado.v1.transfer_pb2 import Enclosed, Trailer

MOST: Final = 1 << 17
"""Bytes of the longest vector that is enclosed: from twice as many on its copies cost what messages do.

Receivers take any that fits into a message.
"""

_SINCE: Final = 2
_LENGTH_DELIMITED: Final = 2
"""The wire type of messages within messages, and of bytes."""
_CHECKSUM: Final = struct.Struct("<BI")
_CHECKSUM_TAG: Final = Enclosed.CRC32_FIELD_NUMBER << 3 | 5
"""A fixed32."""

Parts = tuple[bytes | memoryview, ...]
"""Of bytes that belong one behind the other."""


def is_understood(protocol: ProtocolVersion) -> bool:
    """Whether a peer that speaks this version takes enclosed vectors."""
    return protocol.minor >= _SINCE


def is_short(vector: Vector | Bytes) -> bool:
    """Whether it is enclosed for those who take that."""
    return vector.nbytes <= MOST


def enclose(vector: Vector | Bytes) -> Enclosed:
    """The vector as a field of its header."""
    data = to_little_endian(vector).tobytes()
    return Enclosed(data=data, crc32=crc32(data))


def opened(enclosed: Enclosed, nbytes: int, dtype: DType) -> tuple[Vector, float]:
    """The vector of so many bytes, to read only, and its squared length; raises if it is not as announced.

    The length is infinite where that of finite numbers is beyond the dtype.
    """
    data = enclosed.data
    if len(data) != nbytes:
        raise ProtocolError(f"the header announces {nbytes} bytes and encloses {len(data)}")
    if (found := crc32(data)) != enclosed.crc32:
        raise ChecksumError(
            f"CRC-32 of {nbytes} enclosed bytes is {found:08x}, the header says {enclosed.crc32:08x}; "
            "send the vector again"
        )
    vector = from_wire(data, dtype)
    return vector, finite_square(vector)


def as_transfer(enclosed: Enclosed) -> tuple[BulkChunk, Trailer]:
    """The messages that an enclosed vector stands for."""
    data = enclosed.data
    return BulkChunk(0, memoryview(data)), Trailer(length=len(data), crc32=enclosed.crc32)


def field(number: int, vector: Vector | Bytes) -> Parts:
    """A vector as bytes that, appended to a header, are that field of it.

    They are an `Enclosed`, written here as chunks are in `wire`: a message object would copy it three times.
    `vector` must not change until they are put together.
    """
    data = to_little_endian(vector).view(np.uint8).data
    before = _prefix(Enclosed.DATA_FIELD_NUMBER, len(data))
    whole = _prefix(number, len(before) + len(data) + _CHECKSUM.size)
    return whole + before, data, _CHECKSUM.pack(_CHECKSUM_TAG, crc32(data))


def with_fields(number: int, header: Message, *fields: Parts) -> bytes:
    """An envelope, serialised: as that field of it a header with further fields appended."""
    parts = header.SerializeToString(), *chain.from_iterable(fields)
    return b"".join((_prefix(number, sum(map(len, parts))), *parts))


@lru_cache(maxsize=256)
def _prefix(number: int, length: int) -> bytes:
    """What stands before a field of that length; the vectors of a run are all as long."""
    return to_varint(number << 3 | _LENGTH_DELIMITED) + to_varint(length)
