"""The C allocator, told to keep the buffers of chunks instead of giving their pages back after each.

By default glibc maps a fresh region for every buffer from 128 KiB on and unmaps it when it is freed; a stream
of 1 MiB chunks then spends more time in page faults than in copying. Vectors of whole models, which are
longer than `KEPT`, are still mapped one by one: their memory goes back to the system at once.

All threads share one heap. With a heap for each, gRPC's threads keep the buffers of one chunk each time
over, as a buffer goes back to the heap it is from, and not to the thread that needs one next.
"""

import ctypes
from typing import Final

KEPT: Final = 8 << 20
"""Buffers up to this size come from memory that is kept: a chunk, its message, and room to spare."""
SPARE: Final = 512 << 20
"""Free memory at the end of the heap before any of it is given back."""

# Numbers of <malloc.h>.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_MOST_ARENAS: Final = -8


def keep_chunk_buffers() -> bool:
    """Set this up for the process; whether its C library has such knobs. Call it before threads start."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    wanted = ((_MMAP_THRESHOLD, KEPT), (_TRIM_THRESHOLD, SPARE), (_MOST_ARENAS, 1))
    return mallopt is not None and all(mallopt(knob, value) for knob, value in wanted)
