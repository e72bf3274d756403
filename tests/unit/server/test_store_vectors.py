"""Vectors on disk: what was put comes back, and memory does not grow with the clients."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedecado.common.errors import ConfigError, StoreError
from fedecado.server.algorithms.averaging import AveragingState
from fedecado.server.store import FileVectors, Retention, states
from fedecado.server.store.schema import connect
from fedecado.server.store.vault import INLINE_BYTES, INLINE_TOGETHER, Draft, Place, Vault


@pytest.fixture(params=[0, 1 << 16], ids=["files", "inline"])
def vault(tmp_path: Path, request: pytest.FixtureRequest) -> Vault:
    return Vault(tmp_path, request.param)


def test_vectors_written_together_come_back_one_by_one(vault: Vault) -> None:
    vectors = [np.arange(5, dtype=np.float32), np.arange(3) * 0.1, np.zeros(0), np.arange(2000) * 1.5]
    places = vault.write("update", vectors)
    assert len(vault.names()) <= 1
    for vector, place in zip(vectors, places, strict=True):
        vault.verify(place)
        found = vault.map(place)
        assert (found.dtype, found.tobytes()) == (vector.dtype, vector.tobytes())
        assert not found.flags.writeable


def test_short_vectors_share_a_file_if_they_are_many(tmp_path: Path) -> None:
    """A database writes what it holds twice, and forgets it slowly."""
    vault, short = Vault(tmp_path), np.arange(INLINE_BYTES // 8, dtype=np.float64)
    few = vault.write("update", [short] * (INLINE_TOGETHER // INLINE_BYTES))
    assert all(place.file is None for place in few)
    many = vault.write("update", [short + i for i in range(len(few) + 1)])
    assert [place.file for place in many] == vault.names() * len(many)
    for i, place in enumerate(many):
        np.testing.assert_array_equal(vault.map(place), short + i)
        vault.verify(place)


def test_what_is_deleted_is_not_overwritten(tmp_path: Path) -> None:
    """Some builds of SQLite do so unless told, and a gigabyte of zeros takes seconds."""
    connection = connect(tmp_path)
    assert connection.execute("PRAGMA secure_delete").fetchone() == (0,)
    connection.close()


def test_a_vault_never_gives_a_name_twice(tmp_path: Path) -> None:
    first, second = (Vault(tmp_path).put("client", np.ones(3)) for _ in range(2))
    assert first.file != second.file


def test_client_vectors_act_like_a_dictionary(vault: Vault) -> None:
    chance, vectors = random.Random(0), FileVectors(vault)
    expected: dict[str, bytes] = {}
    for i in range(200):
        client = f"client-{chance.randrange(5)}"
        if chance.random() < 0.2:
            vectors.drop(client)
            expected.pop(client, None)
        elif chance.random() < 0.2:
            vectors.take_changes()
        else:
            vectors.put(client, np.full(4, i, np.float32))
            expected[client] = np.full(4, i, np.float32).tobytes()
        found = {client: np.asarray(vectors.get(client)).tobytes() for client in vectors.clients()}
        assert found == expected


@pytest.mark.parametrize("room", [0, 1000])
def test_a_vector_in_use_survives_its_replacement(vault: Vault, room: int) -> None:
    vectors = FileVectors(vault, resident_bytes=room)
    vectors.put("ann", np.arange(4.0))
    held = vectors.get("ann")
    vectors.put("ann", np.zeros(4))
    np.testing.assert_array_equal(held, np.arange(4.0))
    assert len(vault.names()) == (0 if room else 1)


def test_a_stamp_is_another_one_once_the_vector_is(vault: Vault) -> None:
    vectors = FileVectors(vault)
    assert vectors.stamp("ann") is None
    vectors.put("ann", np.arange(4.0))
    first = vectors.stamp("ann")
    assert first is not None and vectors.stamp("ann") is first
    vectors.put("ann", np.arange(4.0))
    assert vectors.stamp("ann") is not first
    vectors.drop("ann")
    assert vectors.stamp("ann") is None


def test_vectors_stay_in_memory_up_to_a_limit(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vectors = FileVectors(vault, resident_bytes=100)
    own = {client: np.full(4, i, np.float64) for i, client in enumerate("abcdef")}
    for client, vector in own.items():
        vectors.put(client, vector)
    assert len(vault.names()) == 3  # 32 bytes each, so there was room for three
    for client in "abc":
        vectors.drop(client)
    for client in "def":
        vectors.put(client, own[client])
    assert vault.names() == []
    changes = vectors.take_changes()
    assert {client for client, place in changes.items() if place is None} == set("abc")
    again = FileVectors(vault, {c: place for c, place in changes.items() if isinstance(place, Place)}, 40)
    for client in "def":
        np.testing.assert_array_equal(again.get(client), own[client])
        assert again.checksum(client) == vectors.checksum(client)
    assert len(vault.names()) == 2


def test_a_file_that_a_checkpoint_took_is_not_removed(tmp_path: Path) -> None:
    vectors = FileVectors(Vault(tmp_path, 0), resident_bytes=0)
    vectors.put("ann", np.arange(4.0))
    (taken,) = vectors.take_changes().values()
    assert isinstance(taken, Place)
    vectors.put("ann", np.zeros(4))
    vectors.drop("ann")
    assert Vault(tmp_path, 0).names() == [taken.file]
    assert vectors.take_changes() == {"ann": None}


def test_a_long_vector_in_memory_is_written_when_a_checkpoint_settles(tmp_path: Path) -> None:
    """As it was when the checkpoint took it, once, and also if an earlier attempt failed."""
    vault = Vault(tmp_path, 0)
    vectors = FileVectors(vault)
    vectors.put("ann", np.arange(4.0))
    (taken,) = vectors.take_changes().values()
    assert isinstance(taken, Draft)
    assert vault.names() == []
    assert not taken.vector.flags.writeable
    vectors.put("ann", np.ones(4))
    (tmp_path / str(taken.place.file)).mkdir()  # nothing can be written there
    with pytest.raises(StoreError, match="write"):
        vault.settle([taken.place], [taken])
    (tmp_path / str(taken.place.file)).rmdir()
    for _ in range(2):
        vault.settle([taken.place], [taken])
        vault.verify(taken.place)
    np.testing.assert_array_equal(vault.map(taken.place), np.arange(4.0))
    np.testing.assert_array_equal(vectors.get("ann"), np.ones(4))
    assert vault.flushes == 1


def test_what_only_may_be_read_is_copied(tmp_path: Path) -> None:
    """A mapped file, say, that will go."""
    own = np.arange(4.0)
    own.flags.writeable = False
    vectors = FileVectors(Vault(tmp_path))
    vectors.put("ann", own)
    assert not np.shares_memory(np.asarray(vectors.get("ann")), own)


MANY = """
import resource, sys, pathlib
import numpy as np
from fedecado.server.store import FileVectors
from fedecado.server.store.vault import Vault
clients, size = 1000, 200_000
vectors = FileVectors(Vault(pathlib.Path(sys.argv[1])), resident_bytes=16 << 20)
own = np.arange(size, dtype=np.float32)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for i in range(clients):
    own[0] = i
    vectors.put(f"client-{i}", own.copy())
for i in range(clients):
    found = vectors.get(f"client-{i}")
    assert found[0] == i and found.sum() > 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_does_not_grow_with_the_clients(tmp_path: Path) -> None:
    """800 MB of client vectors pass through; the process grows by the limit and a few of them."""
    command = [sys.executable, "-c", MANY, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.stderr == ""
    assert int(done.stdout) < 50_000  # kilobytes


@given(
    versions=st.sets(st.integers(0, 300)),
    last=st.integers(1, 4),
    every=st.integers(0, 30),
    most=st.integers(0, 5),
)
@settings(max_examples=100, deadline=None)
def test_retention_keeps_the_newest_and_a_bounded_row(
    versions: set[int], last: int, every: int, most: int
) -> None:
    kept = Retention(last, every, most).kept(versions)
    assert set(sorted(versions)[-last:]) <= kept <= versions
    assert len(kept) <= last + (most if every else 0)
    assert Retention(last, every, most).kept(kept) == kept or every


def test_retention_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="retention last is 0"):
        Retention(last=0)


def test_a_state_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    vectors = FileVectors(Vault(tmp_path))
    scalars, moments = states.dump(AveragingState(np.zeros(2), 3, 0.5, (np.ones(2), np.zeros(2))))
    loaded = states.load(scalars, moments, np.zeros(2), vectors)
    assert states.dump(loaded)[0] == {"kind": "averaging", "version": 3, "time": 0.5}
    with pytest.raises(StoreError, match="unknown kind 'quantum'"):
        states.load({**scalars, "kind": "quantum"}, moments, np.zeros(2), vectors)
    with pytest.raises(StoreError, match="does not fit"):
        states.load({**scalars, "spin": 1}, moments, np.zeros(2), vectors)
