"""A coordinator killed again and again: nothing acknowledged is lost, nothing counts twice.

FEDECADO_KILLS sets how often the coordinator is killed (200 for a thorough run).
"""

import asyncio
import os
import random
from pathlib import Path

import numpy as np
import pytest
from processes import Processes
from stubborn import Stubborn, free_port

from fedecado.common.layout import Vector
from fedecado.common.model_file import load_model

KILLS = int(os.environ.get("FEDECADO_KILLS", "8"))
ROUNDS = 6 * KILLS


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
        if coordinator.process.returncode is not None:
            break
        await coordinator.kill()
        coordinator, _ = await processes.coordinator(*flags, bind=address)
    assert await coordinator.exits() == 0
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
