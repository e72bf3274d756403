"""CRC-32, by whichever library."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from fedecado.common.checksum import Checksum


@given(pieces=st.lists(st.binary(max_size=300), max_size=5))
def test_the_checksum_of_pieces_is_zlibs_of_the_whole(pieces: list[bytes]) -> None:
    checksum = Checksum()
    for piece in pieces:
        checksum.update(memoryview(piece))
    assert checksum.value == zlib.crc32(b"".join(pieces))
