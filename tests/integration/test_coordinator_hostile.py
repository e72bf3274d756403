"""A real coordinator and streams that mean it ill: what is cut, what is passed over, what goes on."""

import asyncio
import json
from typing import Any

import grpc
import numpy as np
import pytest
from protocol_client import LAYOUT

from fedecado.common.layout import Layout
from fedecado.common.timeouts import Timeouts
from fedecado.common.wire import encode
from fedecado.server.algorithms import Robust, make_algorithm
from fedecado.server.coordinator.quotas import Limits
from fedecado.v1 import session_pb2 as pb


@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compressed_messages_are_refused_unopened(start: Any, algorithm: Any) -> None:
    async with start() as coordinator, grpc.aio.insecure_channel(coordinator.address) as channel:
        method: Any = channel.stream_stream("/fedecado.v1.SessionService/Session")
        call = method(compression=algorithm)
        # Its metadata are enough; whether a message could still be written is a matter of luck.
        assert await asyncio.wait_for(call.code(), 30) == grpc.StatusCode.UNIMPLEMENTED


async def test_no_memory_is_taken_for_what_nobody_asked_for(start: Any, connect: Any) -> None:
    async with start(min_clients=2) as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        state = np.ones(LAYOUT.size, np.float32)
        await client.send(update=client.update_header(pb.Assign(task_id=9, weight=1.0), state))
        chunk, trailer = encode(state)
        await client.send_raw(chunk)
        await client.send(initial_state=pb.InitialState(layout_digest=LAYOUT.digest, state_bytes=4000))
        await client.send_raw(chunk)
        await client.send_raw(trailer)
        acknowledged = await client.expect(pb.Acknowledge)
        assert acknowledged.outcome == pb.Acknowledge.OUTCOME_DUPLICATE
        await client.send_update(pb.Assign(task_id=9, weight=1.0), state)
        refused = await client.expect(pb.Acknowledge)
        assert refused.reason == pb.Acknowledge.REASON_UNKNOWN_TASK
        assert coordinator.quotas.memory == 0


async def test_a_task_of_another_worker_cannot_be_delivered(start: Any, connect: Any) -> None:
    async with start(min_clients=2) as coordinator:
        async with connect(coordinator, "w1") as honest, connect(coordinator, "w2") as thief:
            await honest.send_initial()
            assign, state = await honest.receive_assign()
            await thief.receive_assign()
            await thief.send_update(assign, state + 1)
            refused = await thief.expect(pb.Acknowledge)
            assert refused.reason == pb.Acknowledge.REASON_UNKNOWN_TASK
            await honest.send_update(assign, state + 1)
            accepted = await honest.expect(pb.Acknowledge)
            assert accepted.outcome == pb.Acknowledge.OUTCOME_ACCEPTED


async def test_a_transfer_that_crawls_is_cut_although_it_never_stands_still(start: Any, connect: Any) -> None:
    """Each byte comes within the stall limit; the vector as a whole would take for ever."""
    plan = {"limits": Limits(slowest=1e9)}
    async with start(timeouts=Timeouts(0.5), plan=plan) as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        assign, state = await client.receive_assign()
        await client.send(update=client.update_header(assign, state))

        async def drip() -> None:
            for at in range(LAYOUT.nbytes):
                await client.send(chunk={"offset": at, "data": b"\x00"})
                await asyncio.sleep(0.05)  # the attack itself, not a wait for something

        dripping = asyncio.create_task(drip())
        refused = await asyncio.wait_for(client.expect(pb.Refused), 30)
        dripping.cancel()
        assert "bytes per second" in refused.message
        assert await asyncio.wait_for(client.receive(), 30) is None  # the session is over, and tidied up
        assert coordinator.quotas.memory == 0


async def test_a_full_coordinator_says_so_and_has_room_again_later(start: Any, connect: Any) -> None:
    async with start(plan={"limits": Limits(sessions=1)}) as coordinator:
        async with connect(coordinator, "w1"):
            async with connect(coordinator, "w2", expect=pb.Refused):
                pass
        async with connect(coordinator, "w1", expect=None) as again:
            answer = await again.receive()
            while isinstance(answer, pb.Refused):  # until the coordinator has noticed the first one's end
                again.open()
                await again.hello(expect=None)
                answer = await again.receive()
            assert isinstance(answer, pb.Welcome)


async def test_an_absurd_sample_count_is_refused_so_that_the_weights_of_others_stay(
    start: Any, connect: Any
) -> None:
    async with start(plan={"limits": Limits(samples=1000)}) as coordinator:
        async with connect(coordinator, "w1", expect=None, samples=10**6) as greedy:
            refused = await greedy.expect(pb.Refused)
            assert "limits.samples" in refused.message
        assert "w1" not in coordinator.run.members.by_id


async def test_a_model_too_large_for_this_machine_is_refused_and_not_taken_for_the_runs(
    start: Any, connect: Any
) -> None:
    async with start() as coordinator:
        async with connect(coordinator, "w1", Layout.flat(1 << 45), expect=pb.Refused):
            pass
        async with connect(coordinator, "w2") as client:
            await client.send_initial()


async def test_the_model_of_one_who_came_and_went_does_not_bind_the_others(start: Any, connect: Any) -> None:
    async with start() as coordinator:
        async with connect(coordinator, "w1", Layout.flat(7)):
            pass
        while coordinator.run.layout is not None:
            await asyncio.wait_for(coordinator.run.changed.wait(), 10)
        async with connect(coordinator, "w2") as client:
            await client.send_initial()


@pytest.mark.parametrize(
    "entries",
    [
        [["w", [int("9" * 4000)] * 100, "parameter"]],
        [["w", [1] * 100_000, "parameter"]],
        [["twice", [1], "parameter"]] * 50_000,
    ],
)
async def test_a_layout_made_to_take_for_ever_is_refused_at_once(
    start: Any, connect: Any, entries: list[Any]
) -> None:
    text = json.dumps({"dtype": "float32", "entries": entries})
    async with start() as coordinator, connect(coordinator, "w1", expect=None, layout_json=text) as client:
        refused = await client.expect(pb.Refused)
        assert refused.reason == pb.Refused.REASON_LAYOUT
        assert len(refused.message) < 5000


async def test_an_update_far_beyond_the_usual_is_dropped_with_the_reason(start: Any, connect: Any) -> None:
    guarded = make_algorithm("fedecado", robust=Robust(norm_bound=5.0, beyond="drop"))
    async with start(retry=0.01, made=guarded) as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        await client.work(0.1)
        assign, state = await client.receive_assign()
        version = coordinator.run.engine.version
        await client.send_update(assign, state + np.float32(5.0))
        refused = await client.expect(pb.Acknowledge)
        assert refused.outcome == pb.Acknowledge.OUTCOME_REFUSED
        assert "norm_bound" in refused.message
        assert coordinator.run.engine.version == version
        await client.work(0.1)
