"""Clients times parameters may exceed memory: a coordinator under a cap enrols them all and comes back.

`FEDECADO_CLIENTS=1000`: a thousand clients of a million parameters in 1 GB; 4 to 10 GB of disk, minutes.
"""

import asyncio
import itertools
import os
import shutil

import numpy as np
import pytest
from capped import Cap, anonymous_bytes, capped
from processes import READY, Command, Processes, until
from protocol_client import ProtocolClient

from fedecado.common.layout import Layout
from fedecado.common.timeouts import Timeouts
from fedecado.v1 import session_pb2 as pb

CLIENTS = int(os.environ.get("FEDECADO_CLIENTS", "0"))
LAYOUT = Layout.flat(1_000_000)
FLOWS = CLIENTS * LAYOUT.nbytes
CAP = min(1_000_000_000, int(0.9 * FLOWS))
AT_ONCE = 8
PEER_LOSS = 300.0
"""Nobody is lost here, however slow the disk is."""
FLAGS = (
    *("--rounds", "none", "--rounds-mode", "stream", "--network-peer-loss", str(PEER_LOSS)),
    *("--active", str(AT_ONCE), "--rounds-target-updates", str(AT_ONCE)),
)


async def start(processes: Processes, cap: Cap) -> tuple[Command, str]:
    command = cap.arguments("-m", "fedecado.cli", "coordinator", "--bind", "127.0.0.1:0", *FLAGS)
    coordinator = await processes.python("coordinator", *command)
    return coordinator, (await coordinator.says(READY, within=300)).split()[-1]


async def visit(address: str, number: int) -> bool:
    """A client that comes, trains once and goes; whether it had a flow before."""
    async with ProtocolClient(address, f"w{number}", LAYOUT, None, Timeouts(PEER_LOSS)) as client:
        await client.hello()
        while True:
            match await client.receive():
                case pb.RequestInitialState():
                    zeros = np.zeros(LAYOUT.size, np.float32)
                    header = pb.InitialState(layout_digest=LAYOUT.digest, state_bytes=zeros.nbytes)
                    await client.send(initial_state=header)
                    await client.send_vector(zeros)
                case pb.Acknowledge(task_id=0):
                    pass
                case pb.Assign() as assign:
                    state = await client.receive_vector(assign.state_bytes)
                    if assign.drift_bytes:
                        await client.receive_vector(assign.drift_bytes)
                    await client.send_update(assign, state + np.float32(1 / (1 + number)))
                    answer = await client.expect(pb.Acknowledge)
                    assert answer.outcome == pb.Acknowledge.OUTCOME_ACCEPTED, answer
                    return assign.drift_bytes > 0
                case other:
                    raise AssertionError(f"unexpected {other!r}")


async def all_visit(address: str, numbers: range) -> list[bool]:
    """Everyone once, a few at a time."""
    waiting = iter(numbers)
    had: list[bool] = []

    async def stand_in() -> None:
        for number in waiting:
            had.append(await visit(address, number))  # noqa: PERF401 - others append meanwhile

    await asyncio.gather(*itertools.starmap(stand_in, [()] * AT_ONCE))
    return had


@pytest.mark.skipif(not CLIENTS, reason="takes minutes and gigabytes; set FEDECADO_CLIENTS=1000")
@pytest.mark.timeout(3600)
async def test_flows_of_all_clients_may_exceed_the_coordinators_memory(processes: Processes) -> None:
    if shutil.disk_usage(processes.folder).free < 2.5 * FLOWS:
        pytest.skip(f"needs {2.5 * FLOWS / 1e9:.1f} GB of disk")
    assert FLOWS > CAP
    with capped(CAP) as cap:
        coordinator, address = await start(processes, cap)
        assert not any(await all_visit(address, range(CLIENTS)))
        status = await until(address, lambda status: status.clients.connected == 0)
        assert (status.updates_accepted, status.clients.enrolled) == (CLIENTS, CLIENTS)
        assert status.store_bytes > 0.9 * FLOWS
        print(f"{cap.kind} cap {CAP:,}: anonymous {anonymous_bytes(coordinator.pid):,}, charged {cap.peak()}")
        await coordinator.kill()
        coordinator, address = await start(processes, cap)  # it checks every flow, under the same cap
        assert all(await all_visit(address, range(0, CLIENTS - 2 * AT_ONCE, 10)))
        await until(address, lambda status: status.clients.enrolled == CLIENTS)
        print(f"after the restart: anonymous {anonymous_bytes(coordinator.pid):,}, charged {cap.peak()}")
        assert anonymous_bytes(coordinator.pid) < CAP
        await coordinator.kill()
