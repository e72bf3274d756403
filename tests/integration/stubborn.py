"""A worker without torch that goes on through any number of its coordinator's deaths."""

import asyncio
import socket
from typing import Any

import grpc
import numpy as np
from protocol_client import LAYOUT, ProtocolClient

from fedecado.common.layout import Layout, Vector
from fedecado.v1 import session_pb2 as pb

LOST = (grpc.aio.AioRpcError, asyncio.InvalidStateError, AssertionError)


class Stubborn:
    """A worker that computes the same for the same task, and keeps an update until it is acknowledged."""

    def __init__(self, address: str, number: int, layout: Layout = LAYOUT) -> None:
        self.client = ProtocolClient(address, f"w{number}", layout)
        self._layout = layout
        self.acknowledged: set[int] = set()
        self._goal = np.random.default_rng(number).standard_normal(layout.size).astype(np.float32)
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
        state = np.zeros(self._layout.size, np.float32)
        await self.client.send(
            initial_state=pb.InitialState(layout_digest=self._layout.digest, state_bytes=state.nbytes)
        )
        await self.client.send_vector(state)

    async def _train(self, assign: pb.Assign) -> None:
        state = await self.client.receive_vector(assign.state_bytes)
        drift = await self.client.receive_vector(assign.drift_bytes) if assign.drift_bytes else 0
        end = state - np.float32(0.1) * (state - self._goal - drift)
        self._held = assign, end.astype(np.float32)
        await self.client.send_update(*self._held)


def free_port() -> int:
    """A port for a coordinator that is to be found there again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
