"""Operators drop, ban and readmit workers of a live coordinator."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from protocol_client import LAYOUT, ProtocolClient
from test_coordinator_durable import kept

from fedecado.common.timeouts import Timeouts
from fedecado.common.transport import open_async_channel
from fedecado.server.coordinator.process import Coordinator
from fedecado.v1 import admin_pb2, admin_pb2_grpc
from fedecado.v1 import session_pb2 as pb


@asynccontextmanager
async def operator(coordinator: Coordinator) -> AsyncIterator["admin_pb2_grpc.AdminServiceAsyncStub"]:
    async with open_async_channel(coordinator.address, Timeouts(10.0)) as channel:
        yield admin_pb2_grpc.AdminServiceStub(channel)


async def ban(coordinator: Coordinator, worker: str, reason: str = "garbage") -> admin_pb2.BanClientResponse:
    async with operator(coordinator) as admin:
        return await admin.BanClient(admin_pb2.BanClientRequest(worker_id=worker, reason=reason))


async def refused(coordinator: Coordinator, worker: str) -> pb.Refused:
    async with ProtocolClient(coordinator.address, worker, LAYOUT) as client:
        answer: pb.Refused = await client.hello(expect=pb.Refused)
        return answer


def flow(coordinator: Coordinator, worker: str) -> Any:
    state: Any = coordinator.run.federation and coordinator.run.federation._state
    return state.flows.get(worker)


async def test_a_banned_worker_is_told_why_loses_its_session_and_cannot_return(
    start: Any, connect: Any
) -> None:
    async with start(min_clients=2) as coordinator:
        async with connect(coordinator, "w1") as one, connect(coordinator, "w2") as two:
            await one.send_initial()
            await one.receive_assign()
            answer = await ban(coordinator, "w1", "sends garbage")
            assert answer.client.banned
            told = await one.expect(pb.Refused)
            assert not told.retry
            assert "sends garbage" in told.message
            assert await one.receive() is None
            assert "sends garbage" in (await refused(coordinator, "w1")).message
            await two.work()  # the round goes on without it
        assert "w1" not in coordinator.run.engine.roster


async def test_the_flow_of_a_banned_worker_leaves_the_balance(start: Any, connect: Any) -> None:
    async with start(min_clients=2) as coordinator:
        async with connect(coordinator, "w1") as one, connect(coordinator, "w2") as two:
            await one.send_initial()
            await asyncio.gather(one.work(5.0), two.work(0.1))
            await asyncio.gather(one.receive_assign(), two.receive_assign())
            gone = flow(coordinator, "w1").copy()
            assert np.abs(gone).max() > 0
            balance = coordinator.run.federation._state.F
            await ban(coordinator, "w1")
            assert flow(coordinator, "w1") is None
            np.testing.assert_array_equal(coordinator.run.federation._state.F, balance - gone)


async def test_a_ban_while_a_round_is_computed_takes_the_flow_out_after_it(start: Any, connect: Any) -> None:
    async with start(min_clients=2) as coordinator:
        async with connect(coordinator, "w1") as one, connect(coordinator, "w2") as two:
            await one.send_initial()
            heavy, held, reached = coordinator.run._computing._heavy, asyncio.Event(), asyncio.Event()

            async def waiting(work: Any, *arguments: Any, **options: Any) -> Any:
                if work.__name__ == "commit":
                    reached.set()
                    await held.wait()
                return await heavy(work, *arguments, **options)

            coordinator.run._computing._heavy = waiting
            await asyncio.gather(one.work(5.0), two.work(0.1))
            await reached.wait()
            await ban(coordinator, "w1")
            held.set()
            await two.work()
            assert flow(coordinator, "w1") is None
            assert flow(coordinator, "w2") is not None
            assert coordinator.run.federation.version >= 1


async def test_a_ban_outlives_the_coordinator_and_its_flow_stays_away(start: Any, connect: Any) -> None:
    async with start(**kept(min_clients=2)) as coordinator:
        async with connect(coordinator, "w1") as one, connect(coordinator, "w2") as two:
            await one.send_initial()
            await asyncio.gather(one.work(5.0), two.work(0.1))
            await ban(coordinator, "w1")
            await two.work()
            central = coordinator.run.federation.central.copy()
        # As after a crash: the journal alone has to tell of the ban.
        coordinator.run._capture = None
        coordinator.run.durable.checkpoint = lambda _: None
    async with start(**kept(min_clients=2)) as coordinator:
        assert coordinator.run.engine.banned == {"w1": "garbage"}
        assert flow(coordinator, "w1") is None
        assert np.array_equal(coordinator.run.federation.central, central)
        await refused(coordinator, "w1")
        async with operator(coordinator) as admin:
            await admin.UnbanClient(admin_pb2.UnbanClientRequest(worker_id="w1"))
        async with connect(coordinator, "w1") as back:
            await back.receive_assign()


async def test_who_is_banned_before_the_run_begins_stays_out_of_it(start: Any, connect: Any) -> None:
    async with start(**kept()) as coordinator:
        answer = await ban(coordinator, "w1")
        assert not answer.HasField("client")
        async with connect(coordinator, "w2") as two:
            await two.send_initial()
            await two.work()
            await refused(coordinator, "w1")
    async with start(**kept()) as coordinator:
        await refused(coordinator, "w1")


async def test_a_dropped_worker_may_come_back_with_what_it_holds(start: Any, connect: Any) -> None:
    async with start() as coordinator:
        async with connect(coordinator, "w1") as client, operator(coordinator) as admin:
            await client.send_initial()
            assign, state = await client.receive_assign()
            answer = await admin.DropClient(admin_pb2.DropClientRequest(worker_id="w1", reason="hangs"))
            assert answer.client.state == admin_pb2.Client.STATE_OFFLINE
            bye = await client.expect(pb.CoordinatorBye)
            assert "hangs" in bye.message
            client.open()
            held = pb.HeldTask(task_id=assign.task_id, state=pb.HeldTask.STATE_FINISHED)
            welcome = await client.hello(held_tasks=[held])
            assert welcome.held_tasks[0].verdict == pb.HeldTaskAnswer.VERDICT_SEND
            await client.send_update(assign, state + 1)
            assert (await client.expect(pb.Acknowledge)).outcome == pb.Acknowledge.OUTCOME_ACCEPTED


async def test_nonsense_is_named(start: Any) -> None:
    async with start() as coordinator, operator(coordinator) as admin:
        calls: list[tuple[Any, grpc.StatusCode]] = [
            (admin.DropClient(admin_pb2.DropClientRequest(worker_id="w9")), grpc.StatusCode.NOT_FOUND),
            (admin.UnbanClient(admin_pb2.UnbanClientRequest(worker_id="w9")), grpc.StatusCode.NOT_FOUND),
            (admin.BanClient(admin_pb2.BanClientRequest(worker_id="")), grpc.StatusCode.INVALID_ARGUMENT),
        ]
        for call, code in calls:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await call
            assert error.value.code() is code
