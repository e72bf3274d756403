"""Short vectors within the header that announces them: chunk and trailer would cost more than they carry.

Only for peers that speak version 1.2 of the protocol. A receiver reads an enclosed vector as the chunk and
the trailer that it stands for, so that it is checked by the same code.
"""

import struct
from typing import Final

import numpy as np
from google.protobuf.message import Message

from fedecado.common.checksum import crc32
from fedecado.common.layout import Vector
from fedecado.common.wire import BulkChunk, Bytes, to_little_endian, to_varint
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


def is_understood(protocol: ProtocolVersion) -> bool:
    """Whether a peer that speaks this version takes enclosed vectors."""
    return protocol.minor >= _SINCE


def is_short(vector: Vector | Bytes) -> bool:
    """Whether it is enclosed for those who take that."""
    return vector.nbytes <= MOST


def enclose(vector: Vector | Bytes) -> Enclosed:
    """The vector as a field of its header."""
    enclosed = Enclosed()
    put(enclosed, vector)
    return enclosed


def put(enclosed: Enclosed, vector: Vector | Bytes) -> None:
    """Write the vector into a field of its header."""
    data = to_little_endian(vector).tobytes()
    enclosed.data, enclosed.crc32 = data, crc32(data)


def as_transfer(enclosed: Enclosed) -> tuple[BulkChunk, Trailer]:
    """The messages that an enclosed vector stands for."""
    data = enclosed.data
    return BulkChunk(0, memoryview(data)), Trailer(length=len(data), crc32=enclosed.crc32)


def field(number: int, vector: Vector) -> bytes:
    """A vector as bytes that, appended to a header, are that field of it.

    They are an `Enclosed`, written here as chunks are in `wire`: a message object would copy it three times.
    """
    data = to_little_endian(vector).view(np.uint8).data
    checksum = _CHECKSUM.pack(_CHECKSUM_TAG, crc32(data))
    return _delimited(number, *_prefixed(Enclosed.DATA_FIELD_NUMBER, data), checksum)


def with_fields(number: int, header: Message, *fields: bytes) -> bytes:
    """An envelope, serialised: as that field of it a header with further fields appended."""
    return _delimited(number, header.SerializeToString(), *fields)


def _delimited(number: int, *parts: bytes | memoryview) -> bytes:
    """A message within a message."""
    return b"".join(_prefixed(number, *parts))


def _prefixed(number: int, *parts: bytes | memoryview) -> tuple[bytes | memoryview, ...]:
    """What is in a field, with its number and its length before it."""
    length = sum(map(len, parts))
    return to_varint(number << 3 | _LENGTH_DELIMITED), to_varint(length), *parts
