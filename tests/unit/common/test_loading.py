"""What is loaded is not looked through for garbage."""

import gc
import weakref

import pytest

from fedecado.common.loading import loading


class Node:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


def test_nothing_is_collected_while_modules_are_loaded_nor_looked_through_later() -> None:
    with loading():
        assert not gc.isenabled()
        stays = weakref.ref(Node())
    assert gc.isenabled()
    gc.collect()
    assert stays() is not None
    goes = weakref.ref(Node())
    gc.collect()
    assert goes() is None
    gc.unfreeze()
    gc.collect()
    assert stays() is None


def test_who_has_turned_collections_off_keeps_them_off() -> None:
    gc.disable()
    try:
        with loading():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_collections_go_on_when_a_module_cannot_be_loaded() -> None:
    with pytest.raises(ModuleNotFoundError), loading():
        raise ModuleNotFoundError
    assert gc.isenabled()
