"""A coordinator killed again and again: nothing acknowledged is lost, nothing counts twice.

FEDECADO_KILLS sets how often the coordinator is killed (200 for a thorough run), FEDECADO_FAULTS=all has it
killed at each named point of its writing, not at a few.
"""

import asyncio
import os
import random
import signal
from pathlib import Path

import numpy as np
import pytest
from processes import PATIENCE, Processes
from stubborn import Stubborn, free_port

from fedecado.common.layout import Layout, Vector
from fedecado.common.model_file import load_model
from fedecado.server.store import check
from fedecado.server.store.faults import POINTS

KILLS = int(os.environ.get("FEDECADO_KILLS", "8"))
ROUNDS = 6 * KILLS
FAULTS = (
    POINTS
    if os.environ.get("FEDECADO_FAULTS") == "all"
    else ("vectors.half-written", "checkpoint.before-flip")
)
LONG = Layout.flat(20_000)
"""Vectors that are files of their own."""


async def _play(processes: Processes, name: str, workers: int, kills: int) -> tuple[Vector, list[set[int]]]:
    """A run to its end, with the coordinator killed on the way; the last model and what was acknowledged."""
    address = f"127.0.0.1:{free_port()}"
    everyone = ["--rounds-min-clients", str(workers), "--rounds-min-updates", str(workers)]
    flags = ["--name", name, "--rounds", str(ROUNDS), *everyone]
    coordinator, _ = await processes.coordinator(*flags, bind=address)
    crew = [Stubborn(address, number) for number in range(workers)]
    working = [asyncio.create_task(worker.run()) for worker in crew]
    draw = random.Random(f"{name}/{workers}")
    for _ in range(kills):
        await asyncio.sleep(draw.uniform(0, 0.3))  # the point of the kill; nothing waits for it
        if max(len(worker.acknowledged) for worker in crew) > ROUNDS - 12:
            break  # a run killed in its last moment is over, and nobody is left to tell its workers
        await coordinator.kill()
        coordinator, _ = await processes.coordinator(*flags, bind=address)
    assert await coordinator.exits(within=max(PATIENCE, ROUNDS)) == 0
    await asyncio.wait_for(asyncio.gather(*working), 60)
    _, state, metadata = load_model(Path(processes.model("last", name)))
    assert metadata["version"] == str(ROUNDS)
    return state, [worker.acknowledged for worker in crew]


@pytest.mark.parametrize("workers", [1, 3])
async def test_a_run_killed_again_and_again_ends_as_if_nothing_had_happened(
    processes: Processes, workers: int
) -> None:
    undisturbed, _ = await _play(processes, "calm", workers, kills=0)
    state, acknowledged = await _play(processes, "storm", workers, kills=KILLS)
    if workers == 1:
        assert np.array_equal(state, undisturbed)
    else:
        # Updates arrive in another order, so sums may differ in their last bits.
        assert np.allclose(state, undisturbed, rtol=1e-4, atol=1e-6)
    for tasks in acknowledged:
        assert len(tasks) == ROUNDS  # one update a round from each, none lost and none twice


async def _play_with_fault(processes: Processes, name: str, fault: str) -> Vector:
    """Five rounds with a checkpoint after each; killed at the second passage of a point, if one is named."""
    address = f"127.0.0.1:{free_port()}"
    flags = ("--name", name, "--rounds", "5", "--store-checkpoint-seconds", "0")
    processes.environment = {"FEDECADO_FAULT": f"{fault}:2"} if fault else {}
    coordinator, _ = await processes.coordinator(*flags, bind=address)
    worker = Stubborn(address, 0, LONG)
    working = asyncio.create_task(worker.run())
    if fault:
        assert await coordinator.exits() == -signal.SIGKILL
        processes.environment = {}
        coordinator, _ = await processes.coordinator(*flags, bind=address)
    assert await coordinator.exits() == 0
    await asyncio.wait_for(working, 60)
    assert len(worker.acknowledged) == 5
    assert check(processes.folder / "runs" / name) == []
    _, state, metadata = load_model(Path(processes.model("last", name)))
    assert metadata["version"] == "5"
    return state


@pytest.mark.timeout(1200)
async def test_a_coordinator_killed_inside_its_writing_ends_as_if_nothing_had_happened(
    processes: Processes,
) -> None:
    undisturbed = await _play_with_fault(processes, "calm", "")
    for number, fault in enumerate(FAULTS):
        state = await _play_with_fault(processes, f"killed-{number}", fault)
        assert np.array_equal(state, undisturbed), fault
