"""Memory of long vectors that were let go, for the next ones: fresh pages cost more than filling them.

Short buffers are kept by the allocator, see `allocator`; vectors of whole models are not, unless they come
from here.
"""

import weakref
from typing import Final, final

import numpy as np
import numpy.typing as npt

from fedecado.common import allocator
from fedecado.common.layout import DType, Vector

ALIGNED: Final = 4096
"""Addresses and lengths are multiples of this, as a disk wants them that reads from memory directly."""
MOST: Final = 1 << 30
"""Bytes that are kept."""

Bytes = npt.NDArray[np.uint8]


@final
class Spares:
    """Lends memory, and has it back when nobody refers to it any more, in whatever thread that is."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._kept: list[Bytes] = []

    def take(self, nbytes: int) -> Bytes:
        """At least so many bytes, with zeros behind them up to a multiple of `ALIGNED`."""
        size = -(-nbytes // ALIGNED) * ALIGNED
        block = self._spare()
        if block is None or len(block) != size:  # spares of another size are of a model that is gone
            block = _aligned(size)
        # Views of an array refer to it only if its own base is none; else they would refer to the block.
        lent: Bytes = np.frombuffer(block.data, np.uint8)
        weakref.finalize(lent, self._give, block).atexit = False
        lent[nbytes:] = 0
        return lent

    @property
    def nbytes(self) -> int:
        """Bytes that wait for their next use."""
        return sum(map(len, self._kept))

    def _spare(self) -> Bytes | None:
        try:
            return self._kept.pop()
        except IndexError:
            return None

    def _give(self, block: Bytes) -> None:
        if self.nbytes + len(block) <= self._most:
            self._kept.append(block)


def _aligned(size: int) -> Bytes:
    room = np.empty(size + ALIGNED, np.uint8)
    start = -room.ctypes.data % ALIGNED
    return room[start : start + size]


received = Spares()
"""For vectors that come in over the network."""
trained = Spares()
"""For copies of a model's state that are on their way out."""


def room(spares: Spares, nbytes: int, dtype: DType, whole: int = 0) -> Vector | None:
    """Memory for a long vector, none for a short one: the allocator keeps that itself.

    A vector that is part of a `whole` takes that much, so that both can use what the other has left.
    """
    if nbytes <= allocator.KEPT:
        return None
    return spares.take(max(nbytes, whole))[:nbytes].view(dtype)
