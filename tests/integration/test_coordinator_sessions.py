"""A real coordinator and single streams to it: what is welcome, what is refused, what goes on."""

import asyncio
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from protocol_client import LAYOUT, ProtocolClient

from fedecado.common.layout import Layout, Vector
from fedecado.common.model_file import load_model
from fedecado.common.timeouts import Timeouts
from fedecado.common.wire import encode
from fedecado.server.numerics import rows
from fedecado.v1 import PROTOCOL_MAJOR, PROTOCOL_MINOR, admin_pb2, admin_pb2_grpc
from fedecado.v1 import session_pb2 as pb


async def test_a_run_of_three_rounds_ends_with_goodbye_and_a_saved_model(start: Any, connect: Any) -> None:
    async with start(max_rounds=3, min_clients=2) as coordinator:
        async with connect(coordinator, "w1") as one, connect(coordinator, "w2") as two:
            await one.send_initial()
            for number in (1, 2, 3):
                done = await asyncio.gather(one.work(0.1), two.work(-0.3))
                assert {assign.round for assign in done} == {number}
            for client in (one, two):
                bye = await client.expect(pb.CoordinatorBye)
                assert bye.reason == pb.CoordinatorBye.REASON_FINISHED
        await asyncio.wait_for(coordinator.run.finished.wait(), 10)
    layout, state, metadata = load_model(coordinator.run.files.path("last"))
    assert layout == LAYOUT
    assert metadata["version"] == "3"
    assert np.ptp(state) == 0 and state[0] != 0


async def test_the_flow_goes_to_a_client_from_its_second_task_on(start: Any, connect: Any) -> None:
    async with start(max_rounds=3) as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        first = await client.work()
        second = await client.work()
        assert first.drift_bytes == 0
        assert second.drift_bytes == LAYOUT.parameters * 4


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"protocol": pb.ProtocolVersion(major=99)}, pb.Refused.REASON_PROTOCOL_VERSION, "protocol 99"),
        ({"worker_id": ""}, pb.Refused.REASON_BAD_MESSAGE, "worker id"),
        ({"worker_id": "x" * 200}, pb.Refused.REASON_BAD_MESSAGE, "worker id"),
        ({"worker_id": "a\nb"}, pb.Refused.REASON_BAD_MESSAGE, "worker id"),
        ({"role": pb.ROLE_UNSPECIFIED}, pb.Refused.REASON_BAD_MESSAGE, "role"),
        ({"samples": 0}, pb.Refused.REASON_BAD_MESSAGE, "0 samples"),
        ({"curvature": float("nan")}, pb.Refused.REASON_BAD_MESSAGE, "curvature"),
        ({"curvature": -1.0}, pb.Refused.REASON_BAD_MESSAGE, "curvature"),
        ({"incarnation": 0}, pb.Refused.REASON_BAD_MESSAGE, "incarnation"),
        ({"layout_json": "{}"}, pb.Refused.REASON_LAYOUT, "layout"),
        ({"layout_digest": "0" * 64}, pb.Refused.REASON_LAYOUT, "digest"),
    ],
)
async def test_a_bad_hello_is_refused_with_the_reason(
    start: Any, connect: Any, changes: dict[str, Any], reason: Any, words: str
) -> None:
    async with start() as coordinator, connect(coordinator, "w1", expect=None, **changes) as client:
        refused = await client.expect(pb.Refused)
        assert (refused.reason, refused.retry) == (reason, False)
        assert words in refused.message
        assert await client.receive() is None


async def test_another_model_is_refused(start: Any, connect: Any) -> None:
    async with start() as coordinator, connect(coordinator, "w1"):
        async with connect(coordinator, "w2", Layout.flat(7), expect=pb.Refused) as stranger:
            assert await stranger.receive() is None


async def test_a_first_message_that_is_no_hello_is_refused(start: Any, connect: Any) -> None:
    async with start() as coordinator, connect(coordinator, "w1") as client:
        client.open()
        await client.send(progress=pb.Progress(task_id=1))
        refused = await client.expect(pb.Refused)
        assert "Hello" in refused.message


async def test_a_silent_stream_is_refused_in_time(start: Any, connect: Any) -> None:
    async with start(timeouts=Timeouts(0.3)) as coordinator, connect(coordinator, "w1") as client:
        client.open()
        refused = await asyncio.wait_for(client.expect(pb.Refused), 5)
        assert "sent nothing" in refused.message


async def test_a_second_process_with_the_same_id_is_told_to_wait(start: Any, connect: Any) -> None:
    async with start() as coordinator, connect(coordinator, "w1") as first:
        async with connect(coordinator, "w1", expect=None) as second:
            refused = await second.expect(pb.Refused)
            assert refused.reason == pb.Refused.REASON_WORKER_ID_TAKEN
            assert refused.retry and refused.retry_after_seconds > 0
        await first.send_initial()
        await first.work()


async def test_a_newer_stream_of_the_same_process_takes_over(start: Any, connect: Any) -> None:
    async with start() as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        assign, state = await client.receive_assign()
        client.open()
        held = pb.HeldTask(task_id=assign.task_id, state=pb.HeldTask.STATE_FINISHED)
        welcome = await client.hello(held_tasks=[held])
        assert welcome.held_tasks[0].verdict == pb.HeldTaskAnswer.VERDICT_SEND
        await client.send_update(assign, state + 1)
        acknowledged = await client.expect(pb.Acknowledge)
        assert acknowledged.outcome == pb.Acknowledge.OUTCOME_ACCEPTED


async def test_an_update_sent_twice_counts_once(start: Any, connect: Any) -> None:
    async with start(min_clients=2) as coordinator:
        async with connect(coordinator, "w1") as one, connect(coordinator, "w2") as two:
            await one.send_initial()
            await two.receive_assign()
            assign, state = await one.receive_assign()
            for outcome in (pb.Acknowledge.OUTCOME_ACCEPTED, pb.Acknowledge.OUTCOME_DUPLICATE):
                await one.send_update(assign, state + 1)
                acknowledged = await one.expect(pb.Acknowledge)
                assert acknowledged.outcome == outcome
            assert coordinator.run.journal.accepted == 1


async def test_a_held_update_of_another_run_is_unwanted(start: Any, connect: Any) -> None:
    async with start() as coordinator, connect(coordinator, "w1", expect=None, run_id="old") as client:
        welcome = await client.expect(pb.Welcome)
        assert not welcome.held_tasks
        client.open()
        welcome = await client.hello(run_id="old", held_tasks=[pb.HeldTask(task_id=5)])
        assert welcome.held_tasks[0].verdict == pb.HeldTaskAnswer.VERDICT_UNWANTED


def _poison(state: np.ndarray[Any, Any], at: int, value: float) -> np.ndarray[Any, Any]:
    bad = state.copy()
    bad[at] = value
    return bad


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda s: (_poison(s, 3, np.nan), {}), pb.Acknowledge.REASON_NON_FINITE),
        (lambda s: (_poison(s, 999, -np.inf), {}), pb.Acknowledge.REASON_NON_FINITE),
        (lambda s: (s, {"window": 0.0}), pb.Acknowledge.REASON_INVALID),
        (lambda s: (s, {"window": float("nan")}), pb.Acknowledge.REASON_INVALID),
        (lambda s: (s, {"weight": 17.0}), pb.Acknowledge.REASON_INVALID),
        (lambda s: (s, {"curvature": -2.0}), pb.Acknowledge.REASON_NON_FINITE),
        (lambda s: (s, {"layout_digest": "f" * 64}), pb.Acknowledge.REASON_LAYOUT),
        (lambda s: (s, {"state_bytes": 8}), pb.Acknowledge.REASON_LAYOUT),
        (lambda s: (s, {"task_id": 123456}), pb.Acknowledge.REASON_UNKNOWN_TASK),
    ],
)
async def test_a_bad_update_is_refused_with_the_reason_and_changes_nothing(
    start: Any, connect: Any, spoil: Any, reason: Any
) -> None:
    async with start(retry=0.01) as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        assign, state = await client.receive_assign()
        bad, changes = spoil(state)
        await client.send_update(assign, bad, **changes)
        refused = await client.expect(pb.Acknowledge)
        assert (refused.outcome, refused.reason) == (pb.Acknowledge.OUTCOME_REFUSED, reason), refused
        assert refused.message
        assert coordinator.run.engine.version == 0
        assert coordinator.run.journal.refused == 1
        if reason != pb.Acknowledge.REASON_UNKNOWN_TASK:
            again = await client.work()
            assert again.task_id != assign.task_id


async def test_a_damaged_update_can_be_sent_again(start: Any, connect: Any) -> None:
    async with start() as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        assign, state = await client.receive_assign()
        messages = list(encode(state + 1))
        damaged = bytearray(messages[0])
        damaged[-1] ^= 1
        await client.send(update=client.update_header(assign, state))
        await client.send_raw(bytes(damaged))
        await client.send_raw(messages[-1])
        refused = await client.expect(pb.Acknowledge)
        assert refused.reason == pb.Acknowledge.REASON_DAMAGED
        await client.send_update(assign, state + 1)
        accepted = await client.expect(pb.Acknowledge)
        assert accepted.outcome == pb.Acknowledge.OUTCOME_ACCEPTED


async def test_a_chunk_without_a_header_ends_the_session(start: Any, connect: Any) -> None:
    async with start() as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        await client.receive_assign()
        for message in encode(np.ones(4, np.float32)):
            await client.send_raw(message)
        refused = await client.expect(pb.Refused)
        assert "without a header" in refused.message


async def test_bytes_that_are_no_message_end_the_session_but_not_the_coordinator(
    start: Any, connect: Any
) -> None:
    async with start() as coordinator:
        async with connect(coordinator, "w1") as client:
            await client.send_raw(b"\xff\xff\xff")
            await client.expect(pb.RequestInitialState)
            refused = await client.expect(pb.Refused)
            assert refused.reason == pb.Refused.REASON_BAD_MESSAGE
            assert await client.receive() is None
        async with connect(coordinator, "w2") as other:
            await other.send_initial()
            await other.work()


async def test_another_worker_is_asked_for_the_model_when_the_first_goes(start: Any, connect: Any) -> None:
    async with start() as coordinator:
        async with connect(coordinator, "w1") as first, connect(coordinator, "w2") as second:
            await first.expect(pb.RequestInitialState)
            first.drop()
            await second.send_initial()
            await second.work()


async def test_a_worker_that_fails_is_shown_with_its_traceback_and_asked_again(
    start: Any, connect: Any
) -> None:
    async with start(retry=0.01) as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        assign, _ = await client.receive_assign()
        await client.send(
            task_failed=pb.TaskFailed(
                task_id=assign.task_id,
                exception_type="ValueError",
                message="no cuda",
                traceback="File x, line 1",
            )
        )
        await client.work()
        async with grpc.aio.insecure_channel(coordinator.address) as channel:
            admin = admin_pb2_grpc.AdminServiceStub(channel)
            listed = await admin.ListClients(admin_pb2.ListClientsRequest(tracebacks=True))
        (shown,) = listed.clients
        assert shown.tasks_failed == 1
        assert (shown.last_error.type, shown.last_error.traceback) == ("ValueError", "File x, line 1")


async def test_an_evaluator_measures_versions_and_a_target_ends_the_run(start: Any, connect: Any) -> None:
    from fedecado.server.rounds import Target

    async with start(max_rounds=None, target=Target.parse("accuracy>=0.9")) as coordinator:
        async with (
            connect(coordinator, "w1") as worker,
            connect(coordinator, "judge", role=pb.ROLE_EVALUATOR, samples=0) as judge,
        ):
            await worker.send_initial()
            for accuracy in (0.5, 0.95):
                await worker.work()
                request = await judge.expect(pb.Evaluate)
                await judge.receive_vector(request.state_bytes)
                await judge.send(
                    evaluation=pb.Evaluation(
                        task_id=request.task_id,
                        model_version=request.model_version,
                        metrics={"accuracy": accuracy},
                    )
                )
                await judge.expect(pb.Acknowledge)
            await asyncio.wait_for(coordinator.run.finished.wait(), 10)
    _, _, metadata = load_model(coordinator.run.files.path("best"))
    assert "0.95" in metadata["metrics"]


async def test_health_admin_and_model_download_work(start: Any, connect: Any) -> None:
    async with start() as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        await client.work()
        async with grpc.aio.insecure_channel(coordinator.address) as channel:
            health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
            assert health.status == health_pb2.HealthCheckResponse.SERVING
            admin = admin_pb2_grpc.AdminServiceStub(channel)
            status = (await admin.Status(admin_pb2.StatusRequest())).status
            assert status.phase == admin_pb2.PHASE_RUNNING
            assert status.waiting_for
            pieces = [piece async for piece in admin.GetModel(admin_pb2.GetModelRequest())]
            assert pieces[0].header.state_bytes == LAYOUT.nbytes
            paused = await admin.Pause(admin_pb2.PauseRequest())
            assert paused.status.phase == admin_pb2.PHASE_PAUSED
            await admin.Resume(admin_pb2.ResumeRequest())
            await admin.Stop(admin_pb2.StopRequest(when=admin_pb2.StopRequest.WHEN_NOW, reason="enough"))
            await asyncio.wait_for(coordinator.run.finished.wait(), 10)
            assert coordinator.run.engine.finished == "enough"


async def test_reflection_lists_the_services(start: Any) -> None:
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

    def services(address: str) -> set[str]:
        with grpc.insecure_channel(address) as channel:
            return set(ProtoReflectionDescriptorDatabase(channel).get_services())

    async with start() as coordinator:
        listed = await asyncio.to_thread(services, coordinator.address)
    assert {"fedecado.v1.SessionService", "fedecado.v1.AdminService", "grpc.health.v1.Health"} <= listed


async def test_a_worker_lost_in_mid_upload_does_not_hold_up_the_round(start: Any, connect: Any) -> None:
    async with start(min_clients=2, max_rounds=1) as coordinator:
        async with connect(coordinator, "w1") as one, connect(coordinator, "w2") as two:
            await one.send_initial()
            assign, state = await one.receive_assign()
            await one.send(update=one.update_header(assign, state))
            one.drop()
            await two.work()
            await asyncio.wait_for(coordinator.run.finished.wait(), 10)
    assert coordinator.run.journal.rounds[0].workers == ("w2",)


async def test_a_worker_that_hangs_loses_its_lease_at_the_deadline(start: Any, connect: Any) -> None:
    async with start(min_clients=2, max_rounds=1, deadline=0.2) as coordinator:
        async with connect(coordinator, "w1") as hanging, connect(coordinator, "w2") as honest:
            await hanging.send_initial()
            await hanging.receive_assign()
            await honest.work()
            await asyncio.wait_for(coordinator.run.finished.wait(), 10)
    assert coordinator.run.journal.rounds[0].workers == ("w2",)


async def test_stopping_the_coordinator_tells_the_workers_to_come_back(start: Any, connect: Any) -> None:
    async with start() as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        await client.receive_assign()
        coordinator.stop()
        bye = await client.expect(pb.CoordinatorBye)
        assert bye.reason == pb.CoordinatorBye.REASON_SHUTTING_DOWN


async def test_where_everyone_takes_part_a_long_flow_is_not_sent_again(
    start: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker makes its drift of what it has: what it would be sent, but for the rounding."""
    monkeypatch.setattr(rows, "FORMED_BYTES", 1)  # as if there were no end of parameters
    layout = Layout.flat(40_000)
    now = {"protocol": pb.ProtocolVersion(major=PROTOCOL_MAJOR, minor=PROTOCOL_MINOR), "makes_drifts": True}
    draw = np.random.default_rng(0)
    drift: Vector = np.zeros(0)
    before: tuple[int, Vector, Vector] = 0, drift, drift

    async def receive(client: ProtocolClient) -> tuple[pb.Assign, Vector, Vector]:
        """A task, its state, and the drift that came with it."""
        assign = await client.expect(pb.Assign)
        state = await client.receive_vector(assign.state_bytes)
        sent = await client.receive_vector(assign.drift_bytes) if assign.drift_bytes else np.zeros(0)
        return assign, state, sent

    async def deliver(client: ProtocolClient, assign: pb.Assign, state: Vector) -> Vector:
        end = state + 0.01 * draw.standard_normal(len(state), dtype=np.float32)
        await client.send_update(assign, end)
        acknowledged = await client.expect(pb.Acknowledge)
        assert acknowledged.outcome == pb.Acknowledge.OUTCOME_ACCEPTED
        return end

    async with start(min_clients=2, min_updates=2) as coordinator:
        async with (
            connect(coordinator, "w1", layout, **now) as one,
            connect(coordinator, "w2", layout) as two,
        ):
            await one.send_initial()
            for number in range(1, 7):
                assign, state, sent = await receive(one)
                older, _, drift_of_older = await receive(two)
                assert bool(len(drift_of_older)) == (number > 1), "w2 makes none"
                assert bool(len(sent)) == (number == 2), "from the second task on there is a flow"
                assert assign.HasField("drift_change") == (number > 2)
                if number > 2:
                    change, (last, began, ended) = assign.drift_change, before
                    assert change.task_id == last
                    way, along = (state - began).astype(float), (ended - began).astype(float)
                    drift = change.keep * drift + change.toward * way - change.along * along
                else:
                    drift = sent.astype(float)
                if number < 6:
                    before = assign.task_id, state, await deliver(one, assign, state)
                    await deliver(two, older, state)
            # What a worker has after it has reconnected is not known, so it is sent what it has just made.
            one.open()
            await one.hello(**now)
            again, _, whole = await receive(one)
            assert (again.model_version, again.drift_change.task_id) == (assign.model_version, 0)
    assert np.abs(whole).max() > 0
    np.testing.assert_allclose(drift, whole, rtol=0, atol=2e-6 * np.abs(whole).max())
