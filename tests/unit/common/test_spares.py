"""Memory that is lent again once nobody looks at it."""

import gc

import numpy as np

from fedecado.common.spares import ALIGNED, Spares


def address(array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> int:
    return int(array.ctypes.data)


def test_memory_comes_back_only_when_the_last_view_is_gone() -> None:
    spares = Spares()
    lent = spares.take(3 * ALIGNED)
    first, view = address(lent), lent[4:8].view(np.float32)[:1]
    del lent
    gc.collect()
    assert spares.nbytes == 0
    assert address(spares.take(3 * ALIGNED)) != first
    assert view.base is not None
    del view
    gc.collect()
    assert spares.nbytes >= 3 * ALIGNED
    held = [spares.take(3 * ALIGNED) for _ in range(2)]
    assert first in [address(array) for array in held]


def test_it_is_aligned_and_has_zeros_behind_it() -> None:
    spares = Spares()
    spares.take(2 * ALIGNED)[:] = 255
    lent = spares.take(ALIGNED + 1)
    assert address(lent) % ALIGNED == 0
    assert len(lent) == 2 * ALIGNED
    assert not lent[ALIGNED + 1 :].any()


def test_no_more_than_so_much_is_kept() -> None:
    spares = Spares(most=2 * ALIGNED)
    lent = [spares.take(ALIGNED) for _ in range(3)]
    lent.clear()
    gc.collect()
    assert spares.nbytes == 2 * ALIGNED
    assert len(spares.take(2 * ALIGNED)) == 2 * ALIGNED  # another size
