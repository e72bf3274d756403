"""Updates that go to the disk while they arrive."""

import errno
import gc
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from store_runs import begun, play, recipe

from fedecado.common.checksum import crc32
from fedecado.common.layout import Layout, Vector
from fedecado.server.federation import Result
from fedecado.server.rounds import Enrolled, UpdateArrived
from fedecado.server.store import check, recover, replay_run
from fedecado.server.store.landing import PIECE, Landing
from fedecado.server.store.vault import Vault

SIZES = [PIECE, PIECE + 4, 3 * PIECE - 4, 3 * PIECE + 4096 + 8]
CHUNK = (1 << 20) - 12


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    made = Vault(tmp_path)
    yield made
    made.close()


def drawn(nbytes: int) -> Vector:
    return np.random.default_rng(nbytes).standard_normal(nbytes // 4, dtype=np.float32)


def receive(landing: Landing, vector: Vector) -> None:
    """By chunks that end anywhere."""
    data, into = vector.view(np.uint8), landing.vector.view(np.uint8)
    for start in range(0, len(data), CHUNK):
        stop = min(start + CHUNK, len(data))
        into[start:stop] = data[start:stop]
        landing.reached(stop)
    landing.crc = crc32(vector.tobytes())


@pytest.mark.parametrize("nbytes", SIZES)
def test_what_has_arrived_is_on_the_disk(vault: Vault, nbytes: int) -> None:
    landing, vector = vault.land("update", nbytes, "float32"), drawn(nbytes)
    assert landing is not None
    receive(landing, vector)
    assert landing.finish()
    place = vault.keep(landing)
    assert vault.keep(landing) == place  # a commit that failed is tried again
    vault.verify(place)
    np.testing.assert_array_equal(vault.map(place), vector)
    assert [path.stat().st_size for path in vault.folder.iterdir()] == [nbytes] == [vault.nbytes]


def test_one_that_nobody_keeps_leaves_no_file(vault: Vault) -> None:
    landing = vault.land("update", PIECE, "float32")
    assert landing is not None
    receive(landing, drawn(PIECE))
    landing.finish()
    del landing
    gc.collect()
    assert vault.names() == []


def test_short_ones_do_not_land(vault: Vault) -> None:
    assert vault.land("update", PIECE - 4, "float32") is None


def test_a_disk_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "pwrite", full)
    with ThreadPoolExecutor(1) as executor:
        landing = Landing(tmp_path / "a.part", PIECE, "float32", executor, os.fsync)
        receive(landing, drawn(PIECE))
        assert not landing.finish()
    assert not landing.done


@pytest.mark.parametrize("fails", [False, True])
def test_a_landed_update_is_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    layout, write = Layout.flat(PIECE // 4 + 1), os.pwrite
    made = recipe("fedavg", layout, target_updates=2)
    vector = drawn(layout.nbytes)
    with (run := begun(tmp_path, made)).store as store:
        landing = store.land(layout.nbytes, "float32")
        assert landing is not None
        if fails:  # once; the commit then writes the vector itself
            monkeypatch.setattr(os, "pwrite", lambda *_: write(-1, b"x", 0))
        receive(landing, vector)
        landing.finish()
        monkeypatch.undo()
        result = Result(landing.vector, 0.1, landing=landing)
        for _ in play(
            run, [(Enrolled("ann", 3), None), (Enrolled("bob", 3), None), (UpdateArrived("ann", 1), result)]
        ):
            store.commit()
    assert check(tmp_path) == []
    told = replay_run(tmp_path)
    assert (told.difference, told.updates) == (None, 1)
    with (again := recover(tmp_path)).store:
        (found,) = again.federation.content().results.values()
        np.testing.assert_array_equal(found.state, vector)
