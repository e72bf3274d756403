"""A real coordinator and a worker that sends the opposite of its work: it is found, named, not believed."""

import asyncio
from typing import Any

import numpy as np
from protocol_client import LAYOUT, ProtocolClient

from fedecado.server.algorithms import Robust, make_algorithm
from fedecado.server.coordinator.members import DISTRUSTED
from fedecado.v1 import session_pb2 as pb

ROUNDS = 6
GOALS = {"w1": 1.0, "w2": -2.0, "w3": 4.0, "liar": 2.0}


async def train(client: ProtocolClient) -> None:
    """Tasks one after the other, as a worker with a quadratic loss of its own does them."""
    for _ in range(ROUNDS):
        assign = await client.expect(pb.Assign)
        state = await client.receive_vector(assign.state_bytes)
        drift = (
            await client.receive_vector(assign.drift_bytes) if assign.drift_bytes else np.zeros_like(state)
        )
        move = 0.1 * (drift - (state - np.float32(GOALS[client.worker])))
        await client.send_update(assign, state + (-move if client.worker == "liar" else move))
        acknowledged = await client.expect(pb.Acknowledge)
        assert acknowledged.outcome == pb.Acknowledge.OUTCOME_ACCEPTED


async def test_a_worker_that_goes_against_its_flow_is_named_and_does_not_count(
    start: Any, connect: Any
) -> None:
    made = make_algorithm("fedecado", robust=Robust(response_bound=4.0))
    async with (
        start(made=made, min_clients=4, max_rounds=ROUNDS) as coordinator,
        connect(coordinator, "w1") as first,
        connect(coordinator, "w2") as second,
        connect(coordinator, "w3") as third,
        connect(coordinator, "liar") as liar,
    ):
        await first.send_initial(np.zeros(LAYOUT.size, np.float32))
        await asyncio.gather(*(train(client) for client in (first, second, third, liar)))
        for client in (first, second, third, liar):  # the end of the run, after its last round
            await client.expect(pb.CoordinatorBye)
        run = coordinator.run
        found = {member.id: member.trouble for member in run.members.by_id.values()}
        counts = [closed.details["distrusted"] for closed in run.journal.rounds]
    assert counts == [0, *[1] * (ROUNDS - 1)]
    assert {worker for worker, trouble in found.items() if trouble is not None} == {"liar"}
    assert found["liar"] is not None and found["liar"].kind == DISTRUSTED
