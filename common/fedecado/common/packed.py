"""Updates in a compact format as they come in, chunk by chunk; see `formats` for what is in them."""

import math
from typing import Final, final

import numpy as np

from fedecado.common.checksum import Checksum
from fedecado.common.errors import ChecksumError, FormatError, NonFiniteError, ProtocolError
from fedecado.common.formats import Decoder, packed_bytes
from fedecado.common.layout import Layout, Vector
from fedecado.common.names import COMPACT, Compact
from fedecado.common.wire import BulkChunk
from fedecado.v1 import transfer_pb2 as pb
from fedecado.v1.transfer_pb2 import Trailer

NUMBERS: Final[dict[str, "pb.Format.ValueType"]] = {
    "full": pb.FORMAT_UNSPECIFIED,
    "float16": pb.FORMAT_FLOAT16,
    "bfloat16": pb.FORMAT_BFLOAT16,
    "int8": pb.FORMAT_INT8,
}
"""The formats as the wire names them."""


def accepted_format(number: int, accepted: tuple[Compact, ...]) -> Compact | None:
    """The format of an update, none for full precision; FormatError if it is not accepted."""
    if number == pb.FORMAT_UNSPECIFIED:
        return None
    found = next((name for name in COMPACT if NUMBERS[name] == number), None)
    if found is None or found not in accepted:
        what = f"format {number}" if found is None else found
        said = ", ".join(accepted) or "none"
        raise FormatError(
            f"this came as {what}, but of the compact formats the coordinator takes {said}: give the worker "
            "another upload.format (full always works), or add it to coordinator.upload_formats"
        )
    return found


@final
class PackedReceiver:
    """What `wire.Receiver` is to vectors in full precision: bytes in order, into a vector that is there.

    `start` is the version that the update's task began with. After an error the transfer is lost.
    """

    def __init__(self, format: Compact, layout: Layout, start: Vector, out: Vector | None = None) -> None:
        self._vector: Vector = np.empty(layout.size, layout.dtype) if out is None else out
        self._decoder = Decoder(format, layout, start, self._vector)
        self._expected = packed_bytes(format, layout)
        self._arrived = 0
        self._wire, self._decoded = Checksum(), Checksum()
        self.square = 0.0
        """Squared length of what has arrived; infinite if it is beyond the dtype."""

    @property
    def received(self) -> int:
        """Bytes of the vector that are in their place."""
        return self._decoder.numbers * self._vector.itemsize

    @property
    def crc(self) -> int:
        """CRC-32 of the vector so far, not of what travelled."""
        return self._decoded.value

    def add(self, chunk: BulkChunk) -> None:
        """Decode a chunk; raise unless it is the next one, fits and leads to finite numbers."""
        if not chunk.data or chunk.offset != self._arrived or chunk.offset + len(chunk.data) > self._expected:
            raise ProtocolError(
                f"a chunk of {len(chunk.data)} bytes at byte {chunk.offset} came where byte {self._arrived} "
                f"of {self._expected} is next"
            )
        self._wire.update(chunk.data)
        self._arrived += len(chunk.data)
        for part in self._decoder.feed(chunk.data):
            self._check(part)

    def finish(self, trailer: Trailer) -> Vector:
        """The vector; raise if any of it is missing or damaged."""
        if not self._arrived == self._expected == trailer.length:
            raise ChecksumError(
                f"the trailer counts {trailer.length} bytes, {self._arrived} of {self._expected} have arrived"
            )
        if trailer.crc32 != self._wire.value:
            raise ChecksumError(
                f"CRC-32 of {self._arrived} bytes is {self._wire.value:08x}, "
                f"the trailer says {trailer.crc32:08x}; send the vector again"
            )
        self._decoder.finish()
        return self._vector

    def _check(self, part: slice) -> None:
        """Look at numbers while they are in cache."""
        numbers = self._vector[part]
        self._decoded.update(numbers.view(np.uint8).data)
        with np.errstate(over="ignore", invalid="ignore"):
            square = float(np.dot(numbers, numbers))
        if not math.isfinite(square):  # else every number is
            finite = np.isfinite(numbers)
            if not finite.all():
                at = int(finite.argmin())
                raise NonFiniteError(
                    f"number {part.start + at} of the vector is {numbers[at]}; "
                    "lower the learning rate or clip gradients"
                )
            square = math.inf
        self.square += square
