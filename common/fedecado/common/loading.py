"""Loading what a process needs, without looking for garbage among it."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """No garbage collection within, nor later among what is there by then: modules stay.

    To look through them again and again takes a fifth of a coordinator's start.
    """
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collected:
            gc.enable()
