"""Folders of other versions: older ones are brought forward and go on, newer ones are refused."""

import json
import math
import re
import sqlite3
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_runs import checkpoint, fingerprint, play, recipe, uninterrupted

from fedecado.common.errors import StoreError
from fedecado.server.federation import Federation
from fedecado.server.numerics.options import Options
from fedecado.server.store import Recipe, check, has_run, held, listing, recover, replay_run, schema
from fedecado.server.store.compare import Difference

OLD = Path(__file__).parent / "data" / "store_format_1.sql"
"""80 events of a run, as the version that had format 1 wrote them; the checkpoint holds 59."""
KNOBS = Options(rho=1.2, reach="curvature", horizon="longest", late="alike", inertia=0.1, memory=0.0)
"""What the defaults were then; coordinators store every knob, this run stored none."""
MADE, SEED, EVENTS = replace(recipe("fedecado", mode="stream"), solver=KNOBS), 3, 80
CURRENT = len(schema.MIGRATIONS)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / schema.DATABASE)) as database:
        database.executescript(OLD.read_text())
        (text,) = database.execute("SELECT recipe FROM checkpoint").fetchone()
        stored = json.dumps({**json.loads(text), "solver": asdict(KNOBS)})
        database.execute("UPDATE checkpoint SET recipe = ?", (stored,))
        database.commit()
    return tmp_path


def version(folder: Path) -> int:
    with closing(sqlite3.connect(folder / schema.DATABASE)) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0])


def numbers(federation: Federation) -> dict[str, Any]:
    """All vectors: another processor may end sums with another bit than the one that wrote the file."""
    content = held(federation)
    return {**content.algorithm, **{str(v): vector for v, vector in content.versions.items()}}


def test_a_run_of_the_first_format_goes_on(old: Path) -> None:
    world = uninterrupted(MADE, SEED, 2 * EVENTS)
    whole = uninterrupted(MADE, SEED, EVENTS)
    assert has_run(old)
    with (run := recover(old)).store as store:
        assert (store.run_id, store.durable, run.replayed) == ("r-1", EVENTS, 21)
        assert run.engine.snapshot() == whole.driver.engine.snapshot()
        expected = numbers(whole.driver.federation)
        found = numbers(run.federation)
        assert found.keys() == expected.keys()
        for name, vector in expected.items():
            np.testing.assert_allclose(found[name], vector, rtol=1e-5, atol=1e-7)
        for _ in play(run, world.steps[EVENTS:]):
            pass
        if not run.engine.closing:
            checkpoint(run)
        store.commit()
        after = fingerprint(run.federation)
    assert version(old) == CURRENT
    assert check(old) == []
    with (again := recover(old)).store:
        assert fingerprint(again.federation) == after


def only_the_last_bits_differ(found: Difference) -> bool:
    """As `numbers`: of another processor, the rate that the engine was told may end with other bits."""
    recorded, here = (
        float(re.findall(r"Aggregated\(rate=(.+?)\)", told)[0]) for told in (found.recorded, found.found)
    )
    return math.isclose(recorded, here, rel_tol=1e-6)


def test_a_run_of_the_first_format_has_a_record_from_its_next_checkpoint_on(old: Path) -> None:
    run = recover(old)
    run.store.close()
    told = replay_run(old)  # of the rounds since the old checkpoint it holds the updates, but no outcomes
    assert (told.begins, told.complete) == (59, False)
    assert told.difference is None or only_the_last_bits_differ(told.difference)
    with (run := recover(old)).store:
        for _ in play(run, [] if run.driver.closed is None else [(run.driver.closed.event, None)]):
            pass
        checkpoint(run)
    assert replay_run(old).begins >= EVENTS


def test_who_only_reads_leaves_an_older_format_alone(old: Path) -> None:
    with pytest.raises(StoreError, match=rf"format 1, this version reads {CURRENT}; start the coordinator"):
        listing(old)
    assert version(old) == 1


def test_a_format_is_brought_forward_step_by_step(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def extra(database: sqlite3.Connection) -> None:
        database.execute("CREATE TABLE extra (x)")

    steps = [*schema.MIGRATIONS, extra]
    with monkeypatch.context() as patched:
        patched.setattr(schema, "MIGRATIONS", steps)
        recover(old).store.close()
        assert version(old) == len(steps)
        assert check(old) == []
    with pytest.raises(StoreError, match=rf"format {len(steps)}.*newer fedecado"):
        recover(old)


def test_a_failed_migration_leaves_the_old_format(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(database: sqlite3.Connection) -> None:
        database.execute("CREATE TABLE extra (x)")
        database.execute("nonsense")

    with monkeypatch.context() as patched:
        patched.setattr(schema, "MIGRATIONS", [schema.MIGRATIONS[0], broken])
        with pytest.raises(StoreError, match="from format 1 to 2"):
            recover(old)
    assert version(old) == 1
    recover(old).store.close()
    assert version(old) == CURRENT


def test_a_run_from_before_the_horizon_could_be_chosen_keeps_the_longest() -> None:
    saved = MADE.dump()
    del saved["solver"]["horizon"]
    assert Recipe.load(saved).solver == KNOBS
    assert Recipe.load(replace(MADE, solver=Options()).dump()).solver == Options()


def test_a_run_that_bounded_the_mean_of_a_round_goes_on_with_what_took_its_place() -> None:
    saved = replace(MADE, solver=Options(rho=4.0)).dump()
    saved["solver"] |= {"reach": "mean", "rho": 3.0}
    assert Recipe.load(saved).solver == Options()
