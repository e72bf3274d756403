"""The checksum of a transferred vector: CRC-32, taken as the bytes pass by."""

import zlib
from typing import final


@final
class Checksum:
    """CRC-32 of everything given to `update` so far.

    zlib's CRC needs no dependency, runs at several GB/s and releases the GIL meanwhile. It guards
    against damage, not against an attacker: that is what TLS is for.
    """

    __slots__ = ("_crc",)

    def __init__(self) -> None:
        self._crc = 0

    def update(self, data: bytes | memoryview) -> None:
        self._crc = zlib.crc32(data, self._crc)

    @property
    def value(self) -> int:
        return self._crc
