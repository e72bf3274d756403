"""A folder that is damaged, taken, full or not ours is refused clearly, and stays as it was."""

import itertools
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from store_runs import begun, checkpoint, fingerprint, play, recipe, settled, uninterrupted

from fedecado.common.errors import StoreError
from fedecado.common.layout import Layout
from fedecado.server.store import check, gc, listing, recover, schema
from fedecado.server.store.vault import ASIDE


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped run with a checkpoint, a journal and client vectors, all in files."""
    made, target = recipe(), tmp_path_factory.mktemp("sound")
    with (run := begun(target, made, inline_bytes=0)).store as store:
        for number in play(run, uninterrupted(made, 3, 80).steps):
            if number % 20 > 15 and number < 60 and not run.engine.closing:
                checkpoint(run)
        store.commit()
    gc(target)
    found = listing(target)
    assert found.updates > 0
    assert found.clients > 0
    return target


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "run"))


def files(folder: Path, prefix: str) -> list[Path]:
    return sorted((folder / "vectors").glob(f"{prefix}-*"))


@pytest.mark.parametrize("prefix", ["update", "version", "state", "client"])
def test_a_flipped_bit_is_found_and_named(folder: Path, prefix: str) -> None:
    path = files(folder, prefix)[-1]
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    path.write_bytes(data)
    with pytest.raises(StoreError, match=f"{path.name} is damaged.*backup"):
        recover(folder, inline_bytes=0)
    assert [path.name in problem for problem in check(folder)] == [True]


def test_a_flipped_bit_in_the_database_is_found(tmp_path: Path) -> None:
    begun(tmp_path, recipe()).store.close()
    with closing(sqlite3.connect(tmp_path / schema.DATABASE)) as database, database:
        database.execute("UPDATE vectors SET inline = zeroblob(length) WHERE id = 1")
    with pytest.raises(StoreError, match="a vector in the database is damaged"):
        recover(tmp_path)


@pytest.mark.parametrize("prefix", ["update", "version", "state", "client"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_missing_or_short_file_is_named(folder: Path, prefix: str, whole: bool) -> None:
    path = files(folder, prefix)[0]
    if whole:
        path.unlink()
    else:
        os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(StoreError, match=path.name):
        recover(folder, inline_bytes=0)
    assert any(path.name in problem for problem in check(folder))


def test_files_of_an_unfinished_step_are_swept(folder: Path) -> None:
    before = files(folder, "*")
    (folder / "vectors" / f"update-00ffffff{ASIDE}").write_bytes(b"torn")
    (folder / "vectors" / "client-00fffffe").write_bytes(b"not referred to")
    assert check(folder) == []
    assert listing(folder).unreferenced_bytes == 19
    assert gc(folder) == 19
    assert files(folder, "*") == before


@pytest.mark.parametrize("share", [0.0, 0.4, 0.9])
def test_a_truncated_database_is_refused(folder: Path, share: float) -> None:
    path = folder / schema.DATABASE
    os.truncate(path, int(share * path.stat().st_size))
    with pytest.raises(StoreError, match=r"damaged|malformed|never began"):
        recover(folder, inline_bytes=0)
    assert check(folder) != []


def test_a_missing_row_of_the_journal_is_noticed(folder: Path) -> None:
    with closing(sqlite3.connect(folder / schema.DATABASE)) as database, database:
        database.execute("DELETE FROM events WHERE sequence = (SELECT max(sequence) - 1 FROM events)")
    with pytest.raises(StoreError, match=r"row \d+ of the journal is missing"):
        recover(folder, inline_bytes=0)
    assert any("journal is missing" in problem for problem in check(folder))


def test_a_journal_that_does_not_fit_the_run_is_refused(folder: Path) -> None:
    with closing(sqlite3.connect(folder / schema.DATABASE)) as database, database:
        database.execute("UPDATE events SET kind = 'Teleported' WHERE kind = 'UpdateArrived'")
    with pytest.raises(StoreError, match=r"'Teleported'.*does not know"):
        recover(folder, inline_bytes=0)


def test_two_processes_do_not_share_a_folder(folder: Path) -> None:
    with recover(folder, inline_bytes=0).store:
        for action in (recover, gc):
            with pytest.raises(StoreError, match=f"in use by process {os.getpid()}; stop it first"):
                action(folder)
        assert any("in use" in problem for problem in check(folder))
        assert listing(folder).algorithm == "fedecado"  # this one may look
    recover(folder, inline_bytes=0).store.close()


def test_a_newer_format_is_refused(folder: Path) -> None:
    with closing(sqlite3.connect(folder / schema.DATABASE)) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match=r"format 99.*newer fedecado"):
        recover(folder)


def test_the_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / schema.DATABASE)) as database:
        database.execute("CREATE TABLE holiday_pictures (x)")
    with pytest.raises(StoreError, match="something else"):
        begun(tmp_path, recipe())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    where = tmp_path / "disk"
    where.mkdir()
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(where)]
    if (
        mount is None
        or os.geteuid() != 0
        or subprocess.run(command, capture_output=True, check=False).returncode
    ):
        pytest.skip("only root can mount a small disk")
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


def test_a_full_disk_is_an_error_after_which_the_run_goes_on(small_disk: Path) -> None:
    made = recipe("scaffold", layout=Layout.flat(5_000))
    world = uninterrupted(made, 4, 60)
    run = begun(small_disk / "run", made, inline_bytes=0)
    ballast = small_disk / "ballast"
    playing = play(run, world.steps)
    for _ in range(8):
        next(playing)
    run.store.commit()
    with pytest.raises(OSError, match="No space"), ballast.open("wb") as file:
        for _ in range(1 << 11):
            file.write(bytes(1 << 10))
            file.flush()
    for _ in itertools.islice(playing, 20):
        pass  # rounds close, and their vectors find no room
    run.store.note({"large": "x" * 100_000})
    with pytest.raises(StoreError, match="free some space"):
        run.store.commit()
    with pytest.raises(StoreError, match="free some space"):
        checkpoint(settled(run))
    ballast.unlink()
    run.store.commit()  # nothing was lost: it was still waiting
    checkpoint(run)
    expected = fingerprint(run.federation)
    run.store.close()
    with (again := recover(small_disk / "run", inline_bytes=0)).store:
        assert again.notes == []  # it is in the checkpoint
        assert fingerprint(again.federation) == expected


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot make the folder"):
        begun(tmp_path / "file" / "run", recipe())
