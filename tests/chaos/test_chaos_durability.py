"""A coordinator killed again and again: nothing acknowledged is lost, nothing counts twice.

FEDECADO_KILLS sets how often the coordinator is killed (200 for a thorough run).
"""

import asyncio
import os
import random
import socket
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from processes import Processes
from protocol_client import LAYOUT, ProtocolClient

from fedecado.common.layout import Vector
from fedecado.common.model_file import load_model
from fedecado.v1 import session_pb2 as pb

KILLS = int(os.environ.get("FEDECADO_KILLS", "8"))
ROUNDS = 6 * KILLS
LOST = (grpc.aio.AioRpcError, asyncio.InvalidStateError, AssertionError)


class Stubborn:
    """A worker that computes the same for the same task, and keeps an update until it is acknowledged."""

    def __init__(self, address: str, number: int) -> None:
        self.client = ProtocolClient(address, f"w{number}", LAYOUT)
        self.acknowledged: set[int] = set()
        self._goal = np.random.default_rng(number).standard_normal(LAYOUT.size).astype(np.float32)
        self._held: tuple[pb.Assign, Vector] | None = None

    async def run(self) -> None:
        """Work until the coordinator says that the run is finished, through any number of its deaths."""
        while True:
            self.client.open()
            try:
                await self._greet()
                while not await self._serve():
                    pass
                return
            except LOST:
                await asyncio.sleep(0.02)  # not to wait for anything: to let a dead coordinator be dead

    async def _greet(self) -> None:
        held = [] if self._held is None else [pb.HeldTask(task_id=self._held[0].task_id)]
        welcome = await self.client.hello(held_tasks=held)
        for answer in welcome.held_tasks:
            if answer.verdict == pb.HeldTaskAnswer.VERDICT_SEND and self._held is not None:
                await self.client.send_update(*self._held)
            elif answer.verdict == pb.HeldTaskAnswer.VERDICT_ALREADY_HERE:
                self.acknowledged.add(answer.task_id)
                self._held = None
            else:
                self._held = None

    async def _serve(self) -> bool:
        message: Any = await self.client.receive()
        if message is None:
            raise asyncio.InvalidStateError("the stream ended")
        match message:
            case pb.RequestInitialState():
                await self._send_initial()
            case pb.Assign():
                await self._train(message)
            case pb.Acknowledge() if message.task_id:
                assert message.outcome != pb.Acknowledge.OUTCOME_REFUSED, message
                self.acknowledged.add(message.task_id)
                self._held = None
            case pb.CoordinatorBye():
                return message.reason == pb.CoordinatorBye.REASON_FINISHED
        return False

    async def _send_initial(self) -> None:
        state = np.zeros(LAYOUT.size, np.float32)
        await self.client.send(
            initial_state=pb.InitialState(layout_digest=LAYOUT.digest, state_bytes=state.nbytes)
        )
        await self.client.send_vector(state)

    async def _train(self, assign: pb.Assign) -> None:
        state = await self.client.receive_vector(assign.state_bytes)
        drift = await self.client.receive_vector(assign.drift_bytes) if assign.drift_bytes else 0
        end = state - np.float32(0.1) * (state - self._goal - drift)
        self._held = assign, end.astype(np.float32)
        await self.client.send_update(*self._held)


async def _play(processes: Processes, name: str, workers: int, kills: int) -> tuple[Vector, list[set[int]]]:
    """A run to its end, with the coordinator killed on the way; the last model and what was acknowledged."""
    address = f"127.0.0.1:{_free_port()}"
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
