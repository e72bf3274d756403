"""A run that crashed anywhere goes on as if nothing had happened, bit for bit."""

import os
import random
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_runs import (
    MEMORY,
    Step,
    begun,
    checkpoint,
    fingerprint,
    initial,
    play,
    recipe,
    settled,
    uninterrupted,
)

from fedecado.common.errors import ConfigError, LayoutError, RoundError, StoreError
from fedecado.common.layout import Layout
from fedecado.server.algorithms import AlgorithmName, Robust
from fedecado.server.federation import Result
from fedecado.server.rounds import (
    Accept,
    Aggregated,
    Assign,
    DropVersion,
    Enrolled,
    StartTimer,
    UpdateArrived,
)
from fedecado.server.store import create, has_run, recover

ALGORITHMS: list[AlgorithmName] = ["fedecado", "scaffold", "feddyn", "fedadam", "fedbuff"]


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    algorithm=st.sampled_from(ALGORITHMS),
    mode=st.sampled_from(["rounds", "stream"]),
    staleness=st.sampled_from([1, 20]),
    robust=st.sampled_from([Robust(), Robust(norm_bound=1.0, trim=0.3)]),
    seed=st.integers(0, 2**32),
    inline=st.sampled_from([0, 1 << 16]),
    crashes=st.lists(st.integers(0, 90), min_size=1, max_size=3),
)
def test_a_crash_at_any_moment_changes_nothing(
    algorithm: AlgorithmName,
    mode: str,
    staleness: int,
    robust: Robust,
    seed: int,
    inline: int,
    crashes: list[int],
) -> None:
    if algorithm == "fedecado" and robust.active:
        robust = replace(robust, response_bound=4.0)
    made = recipe(algorithm, mode=mode, max_staleness=staleness, target_updates=3, robust=robust)
    world = uninterrupted(made, seed, 90, bans=True)
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
        folder = Path(scratch) / "0"
        run = begun(folder, made, inline_bytes=inline)
        for number, crash in enumerate([*sorted(crashes), len(world.steps)], 1):
            # What was not committed before the crash happens again after it.
            rest = world.steps[run.store.durable : crash]
            for _ in play(run, rest):
                if chance.random() < 0.3:
                    run.store.commit()
                if chance.random() < 0.1 and not run.engine.closing:
                    checkpoint(run)
            if crash == len(world.steps):
                break
            after = folder.with_name(str(number))
            shutil.copytree(folder, after)  # the disk as a killed process leaves it
            run.store.close()
            folder, run = after, recover(after, inline_bytes=inline)
            assert run.drifted == 0
        assert fingerprint(run.federation) == fingerprint(world.driver.federation)
        run.store.commit()
        run.store.close()
        with recover(folder, inline_bytes=inline).store as store:
            assert store.durable == len(world.steps)


def test_nothing_that_was_not_committed_survives_and_nothing_committed_is_lost(tmp_path: Path) -> None:
    made = recipe()
    steps = uninterrupted(made, 1, 40).steps
    run = begun(tmp_path, made)
    for number in play(run, steps):
        if number == 25:
            assert run.store.commit() == 25
    run.store.close()
    with recover(tmp_path).store as store:
        assert store.durable == 25


def test_a_round_that_had_closed_is_told_to_the_engine_first(tmp_path: Path) -> None:
    """The last update of a round was acknowledged, then the process died before the engine heard more."""
    made = recipe("fedavg", mode="rounds", active=1, target_updates=1)
    run = begun(tmp_path, made)
    result = Result(initial() + 1, 0.1)
    for _ in play(run, [(Enrolled("ann", 3), None), (UpdateArrived("ann", 1), result)]):
        run.store.commit()
    run.store.close()
    again = recover(tmp_path)
    assert (again.engine.closing, again.engine.version, again.federation.version) == ((1,), 0, 1)
    assert isinstance(again.pending, Aggregated)
    effects = again.driver.handle(again.pending)
    assert [type(effect) for effect in effects] == [StartTimer, Assign, DropVersion]
    assert again.pending is None
    again.store.close()


def test_an_update_sent_again_after_a_restart_is_a_duplicate(tmp_path: Path) -> None:
    made = recipe("fedavg", min_clients=2)
    run = begun(tmp_path, made)
    result = Result(initial() + 1, 0.1)
    steps: list[Step] = [
        (Enrolled("ann", 3), None),
        (Enrolled("bob", 3), None),
        (UpdateArrived("ann", 1), result),
    ]
    for _ in play(run, steps):
        run.store.commit()
    run.store.close()
    again = recover(tmp_path)
    assert again.driver.handle(UpdateArrived("ann", 1)) == [Accept(1, "ann", duplicate=True)]
    assert list(again.engine.ready) == [1]
    again.store.close()


def test_members_journal_and_notes_come_back(tmp_path: Path) -> None:
    run = begun(tmp_path, recipe(), run_id="r-1")
    run.store.note({"forgotten": "it is in the checkpoint"})
    checkpoint(run, members={"ann": {"index": 0}}, journal=[{"round": 1, "loss": float("inf")}])
    run.store.note({"hello": "bob"})
    run.store.note({"hello": "cyd"})
    run.store.commit()
    run.store.close()
    again = recover(tmp_path)
    assert (again.store.run_id, again.members) == ("r-1", {"ann": {"index": 0}})
    assert again.journal == [{"round": 1, "loss": float("inf")}]
    assert again.notes == [{"hello": "bob"}, {"hello": "cyd"}]
    again.store.close()


def test_events_are_replayed_under_the_rules_of_their_time(tmp_path: Path) -> None:
    """Rules that change at a restart hold from then on, also after the next crash."""
    before = recipe("fedprox", mode="rounds", active=2, target_updates=2, min_clients=2)
    after = replace(before, rules=replace(before.rules, active=1, target_updates=1), mu=0.5)
    clients: list[Step] = [(Enrolled(client, 3), None) for client in ("ann", "bob")]
    run = begun(tmp_path, before)
    list(play(run, clients))
    run.store.commit()
    run.store.close()
    run = recover(tmp_path, after)
    assert len(run.engine.running()) == 2
    list(play(run, [(UpdateArrived("ann", 1), Result(initial() + 1, 0.1))]))
    assert run.driver.closed is not None  # one update is enough now
    run.store.commit()
    expected = fingerprint(run.federation)
    run.store.close()
    run = recover(tmp_path)
    assert (run.store.recipe, run.engine.rules) == (after, after.rules)
    assert fingerprint(run.federation) == expected
    assert run.federation.offer(2).assignment.pull == 0.5
    run.store.close()


def test_a_run_does_not_go_on_with_another_algorithm_or_model(tmp_path: Path) -> None:
    begun(tmp_path, recipe("fedecado")).store.close()
    with pytest.raises(ConfigError, match="begun with fedecado, not scaffold"):
        recover(tmp_path, recipe("scaffold"))
    with pytest.raises(LayoutError, match=r"7 parameters.*another folder"):
        recover(tmp_path, recipe(layout=Layout.flat(3)))
    recover(tmp_path, recipe("fedecado")).store.close()


def test_a_folder_has_a_run_once_it_was_begun(tmp_path: Path) -> None:
    assert not has_run(tmp_path)
    with pytest.raises(StoreError, match="no run in"):
        recover(tmp_path)
    with pytest.raises(LayoutError):
        create(tmp_path, recipe(), np.zeros(2, np.float32))
    assert not has_run(tmp_path)  # it did not get far
    begun(tmp_path, recipe()).store.close()
    assert has_run(tmp_path)
    with pytest.raises(StoreError, match="holds the run"):
        begun(tmp_path, recipe())


def test_a_checkpoint_is_not_taken_while_a_round_is_aggregated(tmp_path: Path) -> None:
    run = begun(tmp_path, recipe("fedavg", active=1, target_updates=1))
    list(play(run, [(Enrolled("ann", 3), None), (UpdateArrived("ann", 1), Result(initial(), 0.1))]))
    with pytest.raises(RoundError, match="between rounds"):
        checkpoint(run)
    run.store.close()


def test_events_may_go_on_between_a_capture_and_its_checkpoint(tmp_path: Path) -> None:
    made = recipe()
    world = uninterrupted(made, 5, 90)
    run = begun(tmp_path, made, inline_bytes=0)
    capture = None
    for number in play(run, world.steps):
        if number % 30 == 20 and not run.engine.closing:
            capture = run.store.capture(run.federation)
        elif number % 30 == 29 and capture is not None:
            run.store.checkpoint(capture)
            with pytest.raises(StoreError, match="written already"):
                run.store.checkpoint(capture)
            capture = None
    run.store.commit()
    run.store.close()
    run = recover(tmp_path, inline_bytes=0)
    assert run.replayed > 0
    assert fingerprint(run.federation) == fingerprint(world.driver.federation)
    run.store.close()


def test_a_capture_has_the_updates_of_its_open_round_also_when_that_closes_before_it_is_written(
    tmp_path: Path,
) -> None:
    run = begun(tmp_path, recipe("fedavg", mode="rounds", active=2, target_updates=2, min_clients=2))
    list(play(run, [(Enrolled("ann", 3), None), (Enrolled("bob", 3), None)]))
    list(play(run, [(UpdateArrived("ann", 1), Result(initial() + 1, 0.1))]))
    capture = run.store.capture(run.federation)
    assert list(capture.head.updates) == [1]
    list(play(run, [(UpdateArrived("bob", 2), Result(initial() + 3, 0.1))]))
    assert run.driver.closed is not None
    list(play(run, [(run.driver.closed.event, None)]))
    run.store.commit()
    run.store.checkpoint(capture)
    before = fingerprint(run.federation)
    run.store.close()
    run = recover(tmp_path)
    assert fingerprint(run.federation) == before
    run.store.close()


def test_vectors_are_on_the_disk_before_a_checkpoint_holds_commits_up(tmp_path: Path) -> None:
    made = recipe()
    world = uninterrupted(made, 5, 80)
    run = begun(tmp_path, made, inline_bytes=0)
    list(play(run, world.steps[:40]))
    capture = settled(run).store.capture(run.federation)
    run.store.commit()
    run.store.settle(capture)
    there = set((tmp_path / "vectors").iterdir())
    run.store.switch(capture)
    assert set((tmp_path / "vectors").iterdir()) == there
    before = fingerprint(run.federation)
    run.store.close()
    run = recover(tmp_path, inline_bytes=0)
    assert fingerprint(run.federation) == before
    run.store.close()


def test_a_capture_that_was_given_up_leaves_no_files(tmp_path: Path) -> None:
    """Or a journal that cannot be written would cost a model of space at every try."""
    run = begun(tmp_path, recipe("fedadam"), inline_bytes=0)
    list(play(run, uninterrupted(recipe("fedadam"), 5, 80).steps[:40]))
    settled(run).store.commit()
    given_up = run.store.capture(run.federation)
    run.store.settle(given_up)
    there = len(list((tmp_path / "vectors").iterdir()))
    for _ in range(3):
        capture = run.store.capture(run.federation)
        run.store.settle(capture)
        assert len(list((tmp_path / "vectors").iterdir())) == there
    run.store.settle(given_up)  # in a thread that was late: what is newer stays
    run.store.switch(capture)
    before = fingerprint(run.federation)
    run.store.close()
    run = recover(tmp_path, inline_bytes=0)
    assert fingerprint(run.federation) == before
    run.store.close()


def test_what_is_known_of_updates_does_not_grow_until_the_next_checkpoint(tmp_path: Path) -> None:
    """That may be a hundred thousand updates later."""
    made = recipe()
    world = uninterrupted(made, 5, 300)
    run = begun(tmp_path, made)
    known = []
    for _ in play(run, world.steps):
        run.store.commit()
        known.append(len(run.store._updates))
    assert sum(result is not None for _, result in world.steps) > 50
    assert max(known) <= 4 + 2  # in training, and in the open round
    checkpoint(run)  # needs those of the open round
    run.store.close()
    run = recover(tmp_path)
    assert fingerprint(run.federation) == fingerprint(world.driver.federation)
    run.store.close()


@pytest.mark.parametrize("inline", [0, 1 << 16])
def test_a_round_costs_a_handful_of_flushes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: int
) -> None:
    """Updates that wait together share one flush; SQLite adds one per transaction that Python cannot see."""
    flushes: list[int] = []
    flush = os.fsync

    def counted(descriptor: int) -> None:
        flushes.append(descriptor)
        flush(descriptor)

    run = begun(tmp_path, recipe("fedavg", active=4, target_updates=4, min_clients=4), inline_bytes=inline)
    monkeypatch.setattr(os, "fsync", counted)
    clients: list[Step] = [(Enrolled(f"client-{i}", 3), None) for i in range(4)]
    updates: list[Step] = [
        (UpdateArrived(f"client-{i}", i + 1), Result(initial() + i, 0.1)) for i in range(4)
    ]
    list(play(run, clients))
    run.store.commit()
    assert flushes == []
    list(play(run, updates))
    run.store.commit()
    assert len(flushes) == (0 if inline else 2)  # the shared file and its folder
    flushes.clear()
    assert run.driver.closed is not None
    run.driver.handle(run.driver.closed.event)
    checkpoint(run)
    assert len(flushes) == (1 if inline else 2)  # the new version and the folder
    run.store.close()
