"""A coordinator under siege while honest workers train: it stays up and small, their model the same."""

import asyncio
import os
from pathlib import Path

import numpy as np
from processes import Command, Processes, until
from protocol_client import LAYOUT, ProtocolClient
from raw_frames import siege

from fedecado.common.model_file import load_model
from fedecado.v1 import session_pb2 as pb

ROUNDS = 4
ATTACKS = int(os.environ.get("FEDECADO_SIEGE", "36"))
"""Attacks per round."""
GROWTH = 64 << 20
"""Bytes that the coordinator may grow by from the second wave on; allocators keep some."""


async def test_a_siege_changes_neither_the_model_nor_the_memory(processes: Processes, tmp_path: Path) -> None:
    peaceful = await train(processes, "peaceful", attacks=0)
    besieged = await train(processes, "besieged", attacks=ATTACKS)
    assert besieged.tobytes() == peaceful.tobytes()


async def train(
    processes: Processes, name: str, attacks: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Two honest workers that report in turn, so that the result is the same to the bit."""
    coordinator, address = await processes.coordinator(
        "--name", name, "--rounds", str(ROUNDS), "--rounds-min-clients", "2", "--linger", "none"
    )
    sizes = []
    async with ProtocolClient(address, "w1", LAYOUT) as one, ProtocolClient(address, "w2", LAYOUT) as two:
        await one.hello()
        await one.send_initial(np.linspace(-1, 1, LAYOUT.size, dtype=np.float32))
        await two.hello(samples=30)
        for number in range(ROUNDS):
            tasks = [await client.receive_assign() for client in (one, two)]
            thrown, _ = await asyncio.gather(siege(address, number, attacks), report(one, two, tasks, number))
            assert coordinator.process.returncode is None, coordinator.text
            assert thrown >= 1e4 * attacks
            sizes.append(resident(coordinator))
        for client in (one, two):
            await client.expect(pb.CoordinatorBye)
    # The admin service answers after all this, too.
    status = await until(address, lambda now: now.model_version == ROUNDS)
    assert status.updates_accepted == 2 * ROUNDS
    assert sizes[-1] - sizes[1] < GROWTH, sizes
    coordinator.process.terminate()
    assert await coordinator.exits() == 0
    _, state, _ = load_model(processes.model("last", name))
    return np.asarray(state, np.float32)


async def report(
    one: ProtocolClient, two: ProtocolClient, tasks: list[tuple[pb.Assign, np.ndarray]], number: int
) -> None:
    for client, (assign, state), step in zip((one, two), tasks, (0.1, -0.3), strict=True):
        await client.send_update(assign, state * np.float32(1 - step) + np.float32(0.01 * number))
        acknowledged = await client.expect(pb.Acknowledge)
        assert acknowledged.outcome == pb.Acknowledge.OUTCOME_ACCEPTED, acknowledged


def resident(command: Command) -> int:
    """Bytes that a process has in memory now."""
    status = Path(f"/proc/{command.pid}/status").read_text(encoding="ascii")
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])
