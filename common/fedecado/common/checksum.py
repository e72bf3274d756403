"""The checksum of vectors, on the wire and on disk: CRC-32, taken as the bytes pass by."""

from typing import final

try:
    from isal.isal_zlib import crc32
except ModuleNotFoundError:  # where there is no build of it, the same number takes three times as long
    from zlib import crc32

__all__ = ["Checksum", "crc32"]


@final
class Checksum:
    """CRC-32 of everything given to `update` so far.

    Intel's library takes it with carry-less multiplication at some 10 GB/s and releases the GIL meanwhile. It
    guards against damage, not against an attacker: that is what TLS is for.
    """

    __slots__ = ("_crc",)

    def __init__(self) -> None:
        self._crc = 0

    def update(self, data: bytes | memoryview) -> None:
        self._crc = crc32(data, self._crc)

    @property
    def value(self) -> int:
        return self._crc
