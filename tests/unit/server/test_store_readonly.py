"""A folder that may be read and not written: clear errors for who would write, answers for who only looks."""

import multiprocessing
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from store_runs import begun, checkpoint, play, recipe, settled, uninterrupted

from fedecado.common.errors import StoreError
from fedecado.server.store import check, export, gc, listing, recover, replay_run

NOBODY = 65534
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["pytest", "fedecado.server.store"])


def make_run(folder: Path) -> None:
    made = recipe()
    with (run := begun(folder, made, inline_bytes=0)).store:
        for _ in play(run, uninterrupted(made, 3, 60).steps):
            pass
        checkpoint(settled(run))


def expect_refusals(folder: Path, reason: str) -> None:
    """Every way to write is refused with a remedy, and leaves things as they were."""
    before = sorted(path.name for path in (folder / "vectors").iterdir())
    for action in (recover, gc, lambda folder: begun(folder / "other", recipe())):
        with pytest.raises(StoreError, match=reason):
            action(folder)
    assert sorted(path.name for path in (folder / "vectors").iterdir()) == before


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A file system of its own, and how to make it read-only."""
    where = tmp_path / "disk"
    where.mkdir()
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(where)]
    if (
        mount is None
        or os.geteuid() != 0
        or subprocess.run(command, capture_output=True, check=False).returncode
    ):
        pytest.skip("only root can mount a disk")
    try:
        yield where, lambda: _run([str(mount), "-o", "remount,ro", str(where)])
    finally:
        _run(["umount", "--lazy", str(where)])


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)


def test_a_read_only_disk_is_named_and_can_be_looked_at(mounted: tuple[Path, Callable[[], None]]) -> None:
    disk, freeze = mounted
    folder = disk / "run"
    make_run(folder)
    freeze()
    expect_refusals(folder, "read-only")
    assert listing(folder).version > 0
    assert check(folder) == []
    assert replay_run(folder).difference is None
    with tempfile.TemporaryDirectory() as elsewhere:
        assert export(folder, Path(elsewhere) / "snapshot").version == listing(folder).version


def test_a_disk_that_becomes_read_only_under_a_run_loses_nothing_acknowledged(
    mounted: tuple[Path, Callable[[], None]],
) -> None:
    disk, freeze = mounted
    folder, made = disk / "run", recipe()
    run = begun(folder, made, inline_bytes=0)
    durable = 0
    for number in play(run, uninterrupted(made, 3, 60).steps):
        if number == 30:
            durable = run.store.commit()
            break
    run.store.note({"never": "acknowledged"})
    run.store.close()
    freeze()
    with pytest.raises(StoreError, match="read-only"):
        recover(folder, inline_bytes=0)
    assert listing(folder).events == durable == 30


def _as_nobody(folder: Path) -> None:
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    expect_refusals(folder, "may not do that|readonly|writable")
    assert listing(folder).version > 0
    assert check(folder) == []


def test_a_folder_of_another_user_is_named_and_can_be_looked_at() -> None:
    """In a process that is not root, whom permissions do not stop."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        make_run(folder)
        Path(scratch).chmod(0o755)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        process = processes.Process(target=_as_nobody, args=(folder,))
        process.start()
        process.join(60)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755)
        assert process.exitcode == 0
