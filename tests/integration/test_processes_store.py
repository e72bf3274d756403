"""A run's folder from the command line: executed again, exported, and a new run begun from it."""

import asyncio
import json
from pathlib import Path

import numpy as np
from processes import Processes, until
from stubborn import Stubborn

from fedecado.common.model_file import load_model
from fedecado.v1 import admin_pb2 as pb

RECORDED = ("--store-record", "--store-checkpoint-seconds", "0")


async def federate(processes: Processes, name: str, *flags: str) -> pb.RunStatus:
    """A coordinator and two workers, until the run is over; the last status."""
    everyone = ("--rounds-min-clients", "2", "--rounds-min-updates", "2", "--linger", "none")
    coordinator, address = await processes.coordinator("--name", name, *everyone, *RECORDED, *flags)
    workers = [asyncio.create_task(Stubborn(address, number).run()) for number in range(2)]
    status = await until(address, lambda status: status.phase == pb.PHASE_FINISHED)
    await asyncio.wait_for(asyncio.gather(*workers), 60)
    coordinator.process.terminate()
    assert await coordinator.exits() == 0
    return status


async def replayed(processes: Processes, name: str) -> dict[str, object]:
    command = await processes.start("replay", "replay", f"runs/{name}", "--json", "--quiet")
    assert await command.exits() == 0
    found: dict[str, object] = json.loads("\n".join(command.lines))
    return found


async def test_a_run_is_recorded_exported_and_begun_again_from_its_snapshot(processes: Processes) -> None:
    first = await federate(processes, "first", "--rounds", "4")
    assert (first.model_version, first.rounds_closed) == (4, 4)
    assert first.store_bytes > 10_000
    told = await replayed(processes, "first")
    assert (told["complete"], told["computed"], told["updates"], told["difference"]) == (True, 4, 8, None)
    export = await processes.start("export", "store", "export", "runs/first", "-o", "snapshot")
    assert await export.exits() == 0
    assert sorted(path.name for path in (processes.folder / "snapshot").iterdir()) == [
        "model.safetensors",
        "run.json",
        "state.safetensors",
    ]
    second = await federate(processes, "second", "--rounds", "3", "--from-snapshot", "snapshot")
    assert second.run_id != first.run_id
    assert (second.model_version, second.rounds_closed, second.clients.enrolled) == (7, 3, 2)
    assert second.simulated_time > first.simulated_time
    told = await replayed(processes, "second")
    assert (told["complete"], told["computed"], told["difference"]) == (True, 3, None)
    _, began, _ = load_model(processes.folder / "snapshot" / "model.safetensors")
    _, ended, about = load_model(Path(processes.model("last", "second")))
    assert about["version"] == "7"
    assert np.linalg.norm(ended) > np.linalg.norm(began) > 0  # further from 0, where the first one began


async def test_a_coordinator_started_again_after_the_end_serves_the_model(processes: Processes) -> None:
    """As Kubernetes does it: the pod of a run that is over moves, and must not fail for ever."""
    ended = await federate(processes, "first", "--rounds", "2")
    served = ("--name", "first", "--linger", "none", "--rounds", "2")
    again, address = await processes.coordinator(*served)
    status = await until(address, lambda status: status.phase == pb.PHASE_FINISHED)
    assert (status.run_id, status.model_version) == (ended.run_id, 2)
    late = asyncio.create_task(Stubborn(address, 0).run())  # a worker's pod that Kubernetes starts again
    await asyncio.wait_for(late, 60)
    fetch = ("model", "download", "-o", "fetched.safetensors", "--coordinator", address)
    download = await processes.start("download", *fetch)
    assert await download.exits() == 0
    assert load_model(processes.folder / "fetched.safetensors")[2]["version"] == "2"
    again.process.kill()
    await again.exits()
    again, address = await processes.coordinator(*served)
    await until(address, lambda status: status.phase == pb.PHASE_FINISHED)
    again.process.terminate()
    assert await again.exits() == 0


async def test_a_snapshot_is_refused_where_it_cannot_be_begun_from(processes: Processes) -> None:
    for flags, code, said in [
        (("--from-snapshot", "nowhere"), 1, "cannot read nowhere/run.json"),
        (("--from-snapshot", "x", "--initial", "y"), 2, "give one of them"),
        (("--from-snapshot", "x", "--no-coordinator-durable"), 2, "begins a run that is kept"),
    ]:
        command = await processes.start("coordinator", "coordinator", "--bind", "127.0.0.1:0", *flags)
        assert await command.exits() == code
        await command.says(said)
