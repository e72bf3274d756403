"""A coordinator that keeps its run: it ends in any way, and the next one goes on."""

import asyncio
import stat
import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from protocol_client import LAYOUT, ProtocolClient

from fedecado.common.errors import ConfigError, StoreError
from fedecado.common.layout import Layout
from fedecado.common.model_file import load_model
from fedecado.server.rounds import Rules
from fedecado.server.store import Recipe
from fedecado.server.store.vault import Vault
from fedecado.v1 import session_pb2 as pb


def kept(**rules: Any) -> dict[str, Any]:
    """Arguments of `start` for a run that is kept."""

    def recipe(layout: Layout, rules: Rules) -> Recipe:
        return Recipe(layout, "fedecado", rules)

    return {"plan": {"recipe": partial(recipe, rules=Rules(**rules))}, **rules}


async def test_a_run_that_is_kept_goes_through_its_rounds(start: Any, connect: Any) -> None:
    async with start(**kept(max_rounds=3, min_clients=2)) as coordinator:
        async with connect(coordinator, "w1") as one, connect(coordinator, "w2") as two:
            await one.send_initial()
            for _ in range(3):
                await asyncio.gather(one.work(0.1), two.work(-0.3))
            await asyncio.wait_for(coordinator.run.finished.wait(), 10)


async def test_nobody_else_can_look_into_a_runs_folder(start: Any, connect: Any, tmp_path: Path) -> None:
    async with start(**kept()) as coordinator:
        async with connect(coordinator, "w1") as client:
            await client.send_initial()
            await client.work()
    folder = tmp_path / "run"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "vectors")} == {0o700}
    kept_files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".safetensors"]
    assert kept_files
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept_files} == {0o600}


async def test_the_next_coordinator_goes_on_where_the_last_one_stood(start: Any, connect: Any) -> None:
    async with start(**kept(max_rounds=6)) as coordinator:
        async with connect(coordinator, "w1") as client:
            await client.send_initial()
            for _ in range(3):
                await client.work(0.1)
            assign, state = await client.receive_assign()
        run_id, central = coordinator.run.files.run_id, coordinator.run.federation.central.copy()
    async with start(**kept(max_rounds=6)) as coordinator:
        assert coordinator.run.files.run_id == run_id
        assert coordinator.run.federation.version == 3
        assert np.array_equal(coordinator.run.federation.central, central)
        assert coordinator.run.journal.accepted == 3
        async with ProtocolClient(coordinator.address, "w1", LAYOUT) as client:
            client.run_id = run_id
            held = pb.HeldTask(task_id=assign.task_id, state=pb.HeldTask.STATE_FINISHED)
            welcome = await client.hello(held_tasks=[held])
            assert welcome.held_tasks[0].verdict == pb.HeldTaskAnswer.VERDICT_SEND
            await client.send_update(assign, state + 1)
            acknowledged = await client.expect(pb.Acknowledge)
            assert acknowledged.outcome == pb.Acknowledge.OUTCOME_ACCEPTED
            for _ in range(2):
                await client.work(0.1)
            await asyncio.wait_for(coordinator.run.finished.wait(), 10)
        assert coordinator.run.federation.version == 6


async def test_a_stored_runs_model_stays_when_all_its_workers_are_gone(start: Any, connect: Any) -> None:
    async with start(**kept()) as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        await client.work()
    async with start(**kept()) as coordinator:
        async with connect(coordinator, "w1") as client:
            await client.work()
        async with ProtocolClient(coordinator.address, "w2", Layout.flat(7)) as other:
            refused = await other.hello(expect=pb.Refused)
            assert "your model's layout is" in refused.message
        path = await coordinator.run.save_last()
        assert load_model(path)[2]["version"] == "2"


async def test_old_files_are_removed_beside_the_acknowledgements(
    start: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing, removed = threading.Event(), threading.Event()

    def remove(_: Vault, names: Iterable[str]) -> int:
        removing.set()
        assert removed.wait(60)  # a thousand files on a busy disk
        return 0

    often = kept()
    often["plan"]["checkpoint_seconds"] = 0.0
    async with start(**often) as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        await client.work()
        monkeypatch.setattr(Vault, "remove", remove)
        try:
            for _ in range(5):
                await asyncio.wait_for(client.work(), 10)
            assert await asyncio.to_thread(removing.wait, 10)
            await asyncio.wait_for(client.work(), 10)
        finally:
            removed.set()


async def test_measurements_and_the_best_version_are_remembered(start: Any, connect: Any) -> None:
    async with start(**kept()) as coordinator:
        async with (
            connect(coordinator, "w1") as worker,
            connect(coordinator, "judge", role=pb.ROLE_EVALUATOR, samples=0) as judge,
        ):
            await worker.send_initial()
            await worker.work()
            asked = await judge.expect(pb.Evaluate)
            await judge.receive_vector(asked.state_bytes)
            answer = pb.Evaluation(task_id=asked.task_id, model_version=1, metrics={"accuracy": 0.75})
            await judge.send(evaluation=answer)
            await judge.expect(pb.Acknowledge)
            await worker.work()
        # As after a crash: what the last checkpoint does not hold is in the journal's notes.
        coordinator.run._capture = None  # no checkpoint at the end
        coordinator.run.durable.checkpoint = lambda _: None  # nor before
    async with start(**kept()) as coordinator:
        assert coordinator.run.journal.best is not None
        assert coordinator.run.journal.best.metrics == {"accuracy": 0.75}


async def test_a_finished_run_is_not_gone_on_with(start: Any, connect: Any) -> None:
    async with start(**kept(max_rounds=1)) as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        await client.work()
        await asyncio.wait_for(coordinator.run.finished.wait(), 10)
    model = coordinator.run.files.path("last")
    whole = load_model(model)
    model.unlink()  # as if it had been killed before it wrote that
    with pytest.raises(ConfigError, match=r"is over .*--coordinator-fresh"):
        async with start(**kept(max_rounds=1)):
            pass
    _, state, metadata = load_model(model)
    assert np.array_equal(state, whole[1])
    assert (metadata["version"], metadata["run_id"]) == ("1", whole[2]["run_id"])


async def test_a_finished_run_is_served_again_where_its_model_is_wanted(start: Any, connect: Any) -> None:
    forever = kept(max_rounds=1)
    forever["plan"]["linger"] = None
    async with start(**forever) as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        await client.work()
        await asyncio.wait_for(coordinator.run.finished.wait(), 10)
    model = coordinator.run.files.path("last")
    _, state, metadata = load_model(model)
    model.unlink()  # as if it had been killed before it wrote that
    for _ in range(2):  # a pod may be moved more than once
        async with start(**forever) as coordinator:
            await asyncio.wait_for(coordinator.run.finished.wait(), 10)
            assert coordinator.run.files.run_id == metadata["run_id"]
            assert np.array_equal(coordinator.run.federation.central, state)
            async with ProtocolClient(coordinator.address, "w1", LAYOUT) as client:
                await client.hello()
                bye = await client.expect(pb.CoordinatorBye)
                assert bye.reason == pb.CoordinatorBye.REASON_FINISHED
        assert np.array_equal(load_model(model)[1], state)


async def test_more_rounds_may_be_asked_for_at_a_restart(start: Any, connect: Any) -> None:
    async with start(**kept(max_rounds=50)) as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        await client.work()
    async with start(**kept(max_rounds=2)) as coordinator, connect(coordinator, "w1") as client:
        await client.work()
        await asyncio.wait_for(coordinator.run.finished.wait(), 10)
        assert "all 2 rounds" in str(coordinator.run.engine.finished)


async def test_two_coordinators_cannot_share_a_run(start: Any, connect: Any) -> None:
    async with start(**kept()) as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        await client.work()
        with pytest.raises(StoreError, match="in use"):
            async with start(**kept()):
                pass


async def test_who_does_not_come_back_is_missed_after_a_while(start: Any, connect: Any) -> None:
    from fedecado.common.timeouts import Timeouts

    async with start(**kept(min_clients=2)) as coordinator:
        async with connect(coordinator, "w1") as one, connect(coordinator, "w2") as two:
            await one.send_initial()
            await asyncio.gather(one.receive_assign(), two.receive_assign())
    async with start(timeouts=Timeouts(1.5), **kept(min_clients=2)) as coordinator:
        async with connect(coordinator, "w1") as one:
            await asyncio.wait_for(one.work(), 10)
            await asyncio.wait_for(one.receive_assign(), 10)
        assert coordinator.run.journal.rounds[0].workers == ("w1",)
