"""Short vectors in their headers, on a real coordinator: who gets them, what is made of those that come."""

import asyncio
from typing import Any

import numpy as np
import pytest
from protocol_client import LAYOUT, ProtocolClient

from fedecado.common.enclosed import MOST, as_transfer, enclose
from fedecado.common.layout import Layout
from fedecado.common.wire import Receiver
from fedecado.v1 import session_pb2 as pb

OLD, NEW = pb.ProtocolVersion(major=1, minor=1), pb.ProtocolVersion(major=1, minor=2)


async def work_enclosed(client: ProtocolClient, step: float = 0.1) -> pb.Assign:
    """One task, in one message each way."""
    assign, state = await client.receive_assign()
    assert assign.HasField("state") and assign.HasField("drift") == bool(assign.drift_bytes)
    for vector in (assign.state, assign.drift) if assign.drift_bytes else (assign.state,):
        receiver = Receiver(LAYOUT.nbytes, max_bytes=LAYOUT.nbytes)
        chunk, trailer = as_transfer(vector)
        receiver.add(chunk)
        receiver.finish(trailer)
    moved = state + np.float32(step)
    await client.send(update=client.update_header(assign, moved, state=enclose(moved)))
    answer = await client.expect(pb.Acknowledge)
    assert answer.outcome == pb.Acknowledge.OUTCOME_ACCEPTED, answer
    return assign


async def test_workers_of_different_versions_train_in_one_run(start: Any, connect: Any) -> None:
    async with start(max_rounds=3, min_clients=2) as coordinator:
        async with (
            connect(coordinator, "new", protocol=NEW) as new,
            connect(coordinator, "old", protocol=OLD) as old,
        ):
            await new.send_initial()
            for _ in range(3):
                ours, theirs = await asyncio.gather(work_enclosed(new, 0.1), old.work(-0.3))
                assert not theirs.HasField("state") and not theirs.HasField("drift")
                assert ours.state_bytes == theirs.state_bytes == LAYOUT.nbytes
                assert ours.drift_bytes == theirs.drift_bytes
            for client in (new, old):
                await client.expect(pb.CoordinatorBye)
        assert coordinator.run.journal.accepted == 6


async def test_the_coordinator_says_that_it_takes_them(start: Any, connect: Any) -> None:
    async with start() as coordinator, connect(coordinator, "w1", expect=None) as client:
        welcome = await client.expect(pb.Welcome)
        assert welcome.protocol.minor >= 2


async def test_the_same_training_ends_in_the_same_model(start: Any, connect: Any) -> None:
    found = []
    for protocol, work in ((NEW, work_enclosed), (OLD, ProtocolClient.work)):
        async with start(max_rounds=2) as coordinator:
            async with connect(coordinator, "w1", protocol=protocol) as client:
                await client.send_initial()
                for step in (0.25, -0.5):
                    await work(client, step)
                await client.expect(pb.CoordinatorBye)
            assert coordinator.run.federation is not None
            found.append(coordinator.run.federation.central.copy())
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda s: s.__setattr__("crc32", s.crc32 ^ 1), pb.Acknowledge.REASON_DAMAGED),
        (lambda s: s.__setattr__("data", s.data[:-4]), pb.Acknowledge.REASON_DAMAGED),
        (lambda s: s.__setattr__("data", s.data + bytes(4)), pb.Acknowledge.REASON_DAMAGED),
        (lambda s: s.__setattr__("data", b""), pb.Acknowledge.REASON_DAMAGED),
        (lambda s: s.CopyFrom(enclose(np.full(1000, np.nan, "f4"))), pb.Acknowledge.REASON_NON_FINITE),
    ],
)
async def test_a_bad_enclosed_update_is_refused_and_the_session_goes_on(
    start: Any, connect: Any, spoil: Any, reason: Any
) -> None:
    async with start(retry=0.01) as coordinator, connect(coordinator, "w1", protocol=NEW) as client:
        await client.send_initial()
        assign, state = await client.receive_assign()
        update = client.update_header(assign, state, state=enclose(state + 1))
        spoil(update.state)
        await client.send(update=update)
        refused = await client.expect(pb.Acknowledge)
        assert (refused.outcome, refused.reason) == (pb.Acknowledge.OUTCOME_REFUSED, reason), refused
        if reason == pb.Acknowledge.REASON_DAMAGED:
            await client.send(update=client.update_header(assign, state, state=enclose(state + 1)))
            answer = await client.expect(pb.Acknowledge)
            assert answer.outcome == pb.Acknowledge.OUTCOME_ACCEPTED
        else:
            await work_enclosed(client)


async def test_longer_vectors_follow_their_headers(start: Any, connect: Any) -> None:
    layout = Layout.flat(MOST // 4 + 1)
    async with start() as coordinator, connect(coordinator, "w1", layout, protocol=NEW) as client:
        await client.send_initial()
        assign = await client.work()
        assert not assign.HasField("state")


async def test_an_evaluator_gets_a_short_version_in_one_message(start: Any, connect: Any) -> None:
    async with start(max_rounds=1) as coordinator, connect(coordinator, "w1") as worker:
        async with (
            connect(coordinator, "new", role=pb.ROLE_EVALUATOR, protocol=NEW) as new,
            connect(coordinator, "old", role=pb.ROLE_EVALUATOR, protocol=OLD) as old,
        ):
            await worker.send_initial()
            await worker.work(0.5)
            enclosed, followed = await new.expect(pb.Evaluate), await old.expect(pb.Evaluate)
            state = await old.receive_vector(followed.state_bytes)
            assert enclosed.HasField("state") and not followed.HasField("state")
            assert enclosed.state.data == state.tobytes()
            for client, header in ((new, enclosed), (old, followed)):
                answer = pb.Evaluation(task_id=header.task_id, model_version=header.model_version)
                await client.send(evaluation=answer)
