"""A run is executed again from its record; whatever was changed since is found where it first shows."""

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_runs import World, begun, checkpoint, play, recipe, settled, uninterrupted

from fedecado.cli.main import main
from fedecado.server.algorithms import AlgorithmName, Options, Robust
from fedecado.server.store import (
    Recovered,
    Replayed,
    Retention,
    create_from,
    export,
    gc,
    history,
    listing,
    outcome,
    recover,
    replay_run,
    schema,
)

KEPT = Retention(inputs=True)
EVENTS = 120


def go_on(run: Recovered, seed: int, first: int = 0, last: int = EVENTS) -> None:
    """Drive a run through known steps, with checkpoints here and there."""
    made, chance = run.store.recipe, random.Random(seed)
    for number in play(run, uninterrupted(made, seed, EVENTS).steps[first:last]):
        if chance.random() < 0.1 and number < 90 and not run.engine.closing:
            checkpoint(run)
    run.store.commit()


def stopped(
    folder: Path,
    algorithm: AlgorithmName = "fedecado",
    seed: int = 3,
    robust: Robust | None = None,
    **options: Any,
) -> Recovered:
    """A run whose journal goes beyond its last checkpoint."""
    run = begun(folder, recipe(algorithm, robust=robust), **options)
    go_on(run, seed)
    run.store.note({"the": "last row"})
    run.store.commit()
    run.store.close()
    return run


def change(folder: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(folder / schema.DATABASE)) as database, database:
        assert database.execute(statement, values).rowcount > 0


def change_row(folder: Path, kind: str, edit: Callable[[dict[str, Any]], None], where: str = "") -> int:
    """Edit the first row of a kind in the record; its number."""
    with closing(sqlite3.connect(folder / schema.DATABASE)) as database, database:
        number, payload = database.execute(
            f"SELECT sequence, payload FROM history WHERE kind = ? {where} ORDER BY sequence LIMIT 1",  # noqa: S608 - constants
            (kind,),
        ).fetchone()
        content = json.loads(payload)
        edit(content)
        database.execute("UPDATE history SET payload = ? WHERE sequence = ?", (json.dumps(content), number))
        return int(number)


@pytest.mark.parametrize(
    ("algorithm", "robust"),
    [("fedecado", None), ("fedecado", Robust(response_bound=4.0)), ("scaffold", None), ("fedadam", None)],
)
@pytest.mark.parametrize("inline", [0, 1 << 16])
def test_a_recorded_run_is_computed_again_to_the_bit(
    tmp_path: Path, algorithm: AlgorithmName, robust: Robust | None, inline: int
) -> None:
    run = stopped(tmp_path, algorithm, robust=robust, inline_bytes=inline, retention=KEPT)
    told = replay_run(tmp_path)
    assert told == Replayed(
        run.store.run_id,
        algorithm,
        begins=0,
        complete=True,
        events=EVENTS + 1,
        decided=run.federation.version,
        computed=run.federation.version,
        updates=told.updates,
    )
    assert told.updates > told.computed > 5


def test_without_the_updates_the_decisions_are_checked_and_what_the_journal_holds(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    told = replay_run(tmp_path)
    assert (told.difference, told.complete, told.begins) == (None, False, 0)
    assert told.events == EVENTS + 1
    assert 0 < told.computed < told.decided == run.federation.version
    assert 0 < told.updates == listing(tmp_path).updates


def test_a_record_survives_crashes_and_restarts(tmp_path: Path) -> None:
    run = begun(tmp_path, recipe(), retention=KEPT)
    go_on(run, 5, last=70)
    run.store.close()
    run = recover(tmp_path, retention=KEPT)
    go_on(run, 5, first=70)
    run.store.close()
    told = replay_run(tmp_path)
    assert (told.difference, told.begins, told.events) == (None, 0, EVENTS)
    assert told.computed == run.federation.version


@pytest.mark.parametrize("inline", [0, 1 << 16])
def test_a_changed_update_is_found_and_its_client_named(tmp_path: Path, inline: int) -> None:
    stopped(tmp_path, inline_bytes=inline, retention=KEPT)
    with closing(sqlite3.connect(tmp_path / schema.DATABASE)) as database:
        number, payload, file, start, blob = database.execute(
            "SELECT h.sequence, h.payload, v.file, v.start, v.inline FROM history h "
            "JOIN vectors v ON v.id = h.vector ORDER BY h.sequence LIMIT 1 OFFSET 4"
        ).fetchone()
    if blob is None:
        with (tmp_path / "vectors" / file).open("r+b") as stream:
            stream.seek(start)
            stream.write(np.float32(0.125).tobytes())
    else:
        change(tmp_path, "UPDATE vectors SET inline = zeroblob(length) WHERE inline = ?", blob)
    difference = replay_run(tmp_path).difference
    assert difference is not None
    assert (difference.event, difference.client) == (number, json.loads(payload)["client"])
    assert (difference.quantity, difference.recorded) == (
        "digest of its update",
        json.loads(payload)["digest"],
    )


def test_a_changed_window_of_an_update_is_found(tmp_path: Path) -> None:
    stopped(tmp_path, retention=KEPT)

    def longer(payload: dict[str, Any]) -> None:
        payload["result"]["time"] *= 1.01

    number = change_row(tmp_path, "UpdateArrived", longer, "AND vector IS NOT NULL")
    difference = replay_run(tmp_path).difference
    assert difference is not None
    assert (difference.event, difference.quantity) == (number, "digest of its update")


@pytest.mark.parametrize(
    ("section", "name", "value", "quantity"),
    [
        ("solver", "inertia", 0.5, "time"),
        ("rules", "target_updates", 3, "what became of the round"),
    ],
)
@pytest.mark.parametrize("table", ["origin", "checkpoint"])
def test_a_changed_setting_is_found_in_the_first_round_that_it_changes(
    tmp_path: Path, table: str, section: str, name: str, value: float, quantity: str
) -> None:
    """In a run without its updates, the rounds since the checkpoint tell."""
    stopped(tmp_path, seed=4, retention=KEPT if table == "origin" else Retention())
    with closing(sqlite3.connect(tmp_path / schema.DATABASE)) as database:
        (text,) = database.execute(f"SELECT recipe FROM {table}").fetchone()  # noqa: S608 - constants
    content = json.loads(text)
    content["solver"] = content["solver"] or asdict(Options())
    content[section][name] = value
    change(tmp_path, f"UPDATE {table} SET recipe = ?", json.dumps(content))  # noqa: S608 - constants
    difference = replay_run(tmp_path).difference
    assert difference is not None
    assert difference.quantity == quantity or table == "checkpoint"
    assert difference.round == 1 or table == "checkpoint"


def test_a_changed_outcome_is_found(tmp_path: Path) -> None:
    stopped(tmp_path, retention=KEPT)

    def other(payload: dict[str, Any]) -> None:
        payload["outcome"]["scalars"]["time"] += 1e-9

    number = change_row(tmp_path, "Aggregated", other)
    difference = replay_run(tmp_path).difference
    assert difference is not None
    assert (difference.event, difference.round, difference.quantity) == (number, 1, "time")


def test_a_long_update_is_recorded_by_its_crc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of its scalars goes on from that of its vector, so a change of either is found."""
    monkeypatch.setattr(outcome, "LONG_BYTES", 0)
    stopped(tmp_path, retention=KEPT)
    told = replay_run(tmp_path)
    assert (told.difference, told.updates > 5) == (None, True)

    def other(payload: dict[str, Any]) -> None:
        assert payload["digest"].startswith("crc32:")
        payload["result"]["loss_before"] = 0.25

    number = change_row(tmp_path, "UpdateArrived", other)
    difference = replay_run(tmp_path).difference
    assert difference is not None
    assert (difference.event, difference.quantity) == (number, "digest of its update")


def test_a_long_model_is_recorded_by_its_crc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome, "LONG_BYTES", 0)
    stopped(tmp_path, retention=KEPT)
    assert replay_run(tmp_path).difference is None

    def other(payload: dict[str, Any]) -> None:
        recorded = payload["outcome"]["central"]
        assert recorded.startswith("crc32:")
        payload["outcome"]["central"] = f"crc32:{int(recorded[-8:], 16) ^ 1:08x}"

    number = change_row(tmp_path, "Aggregated", other)
    difference = replay_run(tmp_path).difference
    assert difference is not None
    assert (difference.event, difference.quantity) == (number, "digest of the new model")


def test_a_record_with_the_sha256_of_long_models_and_updates_is_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(tmp_path, retention=KEPT)
    monkeypatch.setattr(outcome, "LONG_BYTES", 0)
    told = replay_run(tmp_path)
    assert told.difference is None
    assert min(told.computed, told.updates) > 5


def test_a_changed_checkpoint_is_found(tmp_path: Path) -> None:
    """The state as a whole is compared where the last checkpoint has it, also if a note came last."""
    run = begun(tmp_path, recipe(), retention=KEPT)
    go_on(run, 3)
    settled(run).store.note({"before": "the checkpoint"})
    checkpoint(run)
    run.store.close()
    change(tmp_path, "UPDATE checkpoint SET scalars = replace(scalars, '\"level\":', '\"level\":1')")
    difference = replay_run(tmp_path).difference
    assert difference is not None
    assert difference.quantity == "level"


def test_a_removed_event_is_found_without_the_updates_too(tmp_path: Path) -> None:
    stopped(tmp_path)
    change_row(tmp_path, "UpdateArrived", lambda payload: payload.update(task=999))
    assert replay_run(tmp_path).difference is not None


def test_a_record_begins_anew_when_it_is_switched_on_or_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(tmp_path, recipe())
    go_on(run, 6, last=40)
    run.store.close()
    run = recover(tmp_path, retention=KEPT)
    go_on(run, 6, first=40, last=80)
    run.store.close()
    told = replay_run(tmp_path)
    assert told.complete
    assert 40 <= told.begins < 80
    monkeypatch.setattr(history, "EVENTS", 5)
    run = recover(tmp_path, retention=KEPT)
    go_on(run, 6, first=80)
    checkpoint(settled(run))
    run.store.close()
    told = replay_run(tmp_path)
    assert (told.difference, told.complete) == (None, True)
    assert told.begins > 80


def test_updates_that_are_no_longer_wanted_are_let_go(tmp_path: Path) -> None:
    run = begun(tmp_path, recipe(), inline_bytes=0, retention=KEPT)
    go_on(run, 6, last=80)
    checkpoint(settled(run))
    run.store.close()
    gc(tmp_path)
    before = listing(tmp_path).vector_bytes
    run = recover(tmp_path, inline_bytes=0)
    checkpoint(run)
    run.store.close()
    assert listing(tmp_path).vector_bytes < before / 2
    assert not replay_run(tmp_path).complete
    assert replay_run(tmp_path).difference is None


def test_the_updates_kept_stay_within_their_limit(tmp_path: Path) -> None:
    size = 200 * 9 * 4
    run = begun(tmp_path, recipe(), inline_bytes=0, retention=Retention(inputs=True, inputs_bytes=size // 20))
    go_on(run, 7)
    run.store.close()
    kept = [path.stat().st_size for path in (tmp_path / "vectors").glob("update-*")]
    assert sum(kept) < size / 2
    assert replay_run(tmp_path).difference is None


def test_a_run_from_a_snapshot_is_computed_again_from_there(tmp_path: Path) -> None:
    stopped(tmp_path / "old")
    export(tmp_path / "old", tmp_path / "snapshot")
    model = create_from(tmp_path / "snapshot", tmp_path / "model")
    steps = World(model.driver, random.Random(8)).run(EVENTS)
    model.store.close()
    run = create_from(tmp_path / "snapshot", tmp_path / "new", retention=KEPT)
    first = run.federation.version
    for number in play(run, steps):
        if number % 20 > 15 and not run.engine.closing:
            checkpoint(run)
    run.store.commit()
    run.store.close()
    told = replay_run(tmp_path / "new")
    assert (told.difference, told.complete, told.begins) == (None, True, 0)
    assert told.computed == run.federation.version - first > 5


def test_the_command_says_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped(tmp_path / "whole", retention=KEPT)
    stopped(tmp_path / "bare")
    assert main(["replay", str(tmp_path / "whole")]) == 0
    assert capsys.readouterr().out.endswith("\nno difference\n")
    assert main(["replay", str(tmp_path / "bare")]) == 0
    assert "--store-record keeps them\nno difference\n" in capsys.readouterr().out
    change_row(tmp_path / "whole", "Aggregated", lambda payload: payload["outcome"].update(central="abc"))
    assert main(["replay", str(tmp_path / "whole")]) == 1
    said = capsys.readouterr().out
    assert "first difference: round 1 (event " in said
    assert "digest of the new model\n  recorded  abc\n" in said
    assert main(["replay", str(tmp_path / "whole"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["difference"]["recorded"] == "abc"
    assert main(["replay", str(tmp_path / "nowhere")]) == 1
    assert "there is no run in" in capsys.readouterr().err
