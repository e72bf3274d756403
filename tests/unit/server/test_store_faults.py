"""A process killed at any step of any write leaves a run that goes on, with all it had acknowledged."""

import multiprocessing
import os
import signal
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from store_runs import MEMORY, begun, checkpoint, fingerprint, play, recipe, uninterrupted

from fedecado.server.store import (
    Recovered,
    check,
    create_from,
    export,
    faults,
    has_run,
    recover,
    schema,
    vault,
)
from fedecado.server.store.faults import ONCE, POINTS

MADE = recipe("fedecado", max_staleness=2)
SEED, EVENTS = 11, 60
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["pytest", "fedecado.server.store"])


def opened(folder: Path) -> Recovered:
    return recover(folder, inline_bytes=0) if has_run(folder) else begun(folder, MADE, inline_bytes=0)


def victim(folder: Path, point: str, passage: int) -> None:
    """Runs until it is killed; what is durable, and so acknowledged, it says in a file."""
    faults.arm(point, passage)
    vault.LANDING_BYTES = 0  # type: ignore[misc]
    said = os.open(folder / "acknowledged", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    with (run := opened(folder)).store:
        for number in play(run, uninterrupted(MADE, SEED, EVENTS).steps, land=point.startswith("landing")):
            if number % 3 == 0:
                os.write(said, f"{run.store.commit()}\n".encode())
            if number % 10 > 6 and not run.engine.closing:
                checkpoint(run)


@pytest.mark.parametrize("passage", [1, 7])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_step_loses_nothing_that_was_acknowledged(point: str, passage: int) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
        folder = Path(scratch)
        process = processes.Process(target=victim, args=(folder, point, passage))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        said = (folder / "acknowledged").read_text().split()
        world = uninterrupted(MADE, SEED, EVENTS)
        with (run := opened(folder)).store as store:
            assert store.durable >= int(said[-1] if said else 0)
            for _ in play(run, world.steps[store.durable :]):
                pass
            assert fingerprint(run.federation) == fingerprint(world.driver.federation)
            if not run.engine.closing:
                checkpoint(run)
            store.commit()
        assert check(folder) == []


def begin(folder: Path, point: str) -> None:
    faults.arm(point)
    begun(folder, MADE).store.close()


def bring_forward(folder: Path, point: str) -> None:
    """A folder of the first format, and then of this one."""
    faults.arm(point)
    with closing(sqlite3.connect(folder / schema.DATABASE)) as database:
        database.executescript((Path(__file__).parent / "data" / "store_format_1.sql").read_text())
    recover(folder).store.close()


def take_out(folder: Path, point: str) -> None:
    """A snapshot of a run with client vectors."""
    with (run := begun(folder / "run", MADE)).store as store:
        for _ in play(run, uninterrupted(MADE, SEED, EVENTS).steps):
            pass
        store.commit()
    faults.arm(point)
    export(folder / "run", folder / "snapshot")


JOBS = {"create": begin, "migration": bring_forward, "export": take_out}


@pytest.mark.parametrize("point", ONCE)
def test_a_kill_in_what_happens_once_leaves_it_done_or_to_be_done_again(point: str) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
        folder = Path(scratch)
        process = processes.Process(target=JOBS[point.partition(".")[0]], args=(folder, point))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        if point.startswith("export"):
            assert not (folder / "snapshot").exists()
            export(folder / "run", folder / "snapshot")
            create_from(folder / "snapshot", folder / "new").store.close()
            folder = folder / "new"
        else:
            assert has_run(folder)
            recover(folder).store.close()
        assert check(folder) == []


def test_a_point_that_nobody_asked_for_does_nothing() -> None:
    for name in (*POINTS, *ONCE):
        faults.point(name)
    with pytest.raises(ValueError, match="unknown fault point 'nowhere'"):
        faults.arm("nowhere")
