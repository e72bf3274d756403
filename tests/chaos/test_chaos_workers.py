"""Workers that die, freeze or misbehave in the middle of a round: the round goes on without them."""

import asyncio
import signal
import time

import numpy as np
from processes import Processes, clients, closed_rounds
from protocol_client import ProtocolClient

from fedecado.common.layout import Layout
from fedecado.common.model_file import load_model
from fedecado.common.wire import encode
from fedecado.v1 import admin_pb2
from fedecado.v1 import session_pb2 as pb

POINT = ("--task", "process_tasks:point", "--training-probes", "1", "--clients", "2")
QUICK = ("--network-peer-loss", "3")
LARGE = Layout.flat(24 << 20)

HALF_SENT = """
import asyncio, sys
import numpy as np
from fedecado.common.layout import Layout
from fedecado.common.wire import encode
from protocol_client import ProtocolClient

async def main(address, size):
    async with ProtocolClient(address, "doomed", Layout.flat(size)) as client:
        await client.hello()
        assign, state = await client.receive_assign()
        await client.send(update=client.update_header(assign, state))
        for number, message in enumerate(encode(state)):
            if number * (1 << 20) > state.nbytes / 2:
                break
            await client.send_raw(message)
        print("half sent")
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def test_a_worker_killed_in_mid_upload_does_not_hold_up_the_round(processes: Processes) -> None:
    _, address = await processes.coordinator("--rounds", "1", "--rounds-min-clients", "2", "--linger", "none")
    size = 2 << 20
    async with ProtocolClient(address, "honest", Layout.flat(size)) as honest:
        await honest.hello()
        await honest.send_initial()
        doomed = await processes.python("doomed", "-c", HALF_SENT, address, str(size))
        await doomed.says("half sent")
        doomed.send_signal(signal.SIGKILL)
        await asyncio.wait_for(honest.work(), 60)
        await honest.expect(pb.CoordinatorBye)
    (closed,) = await closed_rounds(address)
    assert list(closed.worker_ids) == ["honest"]
    listed = await clients(address)
    assert listed["doomed"].updates_accepted == listed["doomed"].updates_refused == 0


async def test_a_real_worker_killed_as_it_uploads_leaves_the_round_to_the_others(
    processes: Processes,
) -> None:
    coordinator, address = await processes.coordinator(
        "--rounds", "1", "--rounds-min-clients", "2", "--linger", "none"
    )
    async with ProtocolClient(address, "honest", LARGE) as honest:
        await honest.hello()
        await honest.send_initial()
        doomed = await processes.worker(address, "doomed", *POINT, "--task-arg", "megabytes=96")
        work = asyncio.create_task(honest.receive_assign())
        await doomed.says("task 1 finished|task 2 finished")
        doomed.send_signal(signal.SIGKILL)
        await coordinator.says("doomed is gone")
        assign, state = await work
        await honest.send_update(assign, state)
        await honest.expect(pb.Acknowledge)
        await honest.expect(pb.CoordinatorBye)
    (closed,) = await closed_rounds(address)
    assert list(closed.worker_ids) == ["honest"]


async def test_a_frozen_worker_is_noticed_in_time_and_takes_part_again_when_it_thaws(
    processes: Processes,
) -> None:
    coordinator, address = await processes.coordinator(
        "--rounds", "40", "--rounds-min-clients", "2", *QUICK, "--linger", "none"
    )
    frozen = await processes.worker(
        address, "frozen", *POINT, *QUICK, "--task-arg", "samples=200000", "--log-level", "debug"
    )
    async with ProtocolClient(address, "honest", Layout.flat(1048)) as honest:
        await honest.hello()
        await honest.send_initial()
        await frozen.says("task .* started")
        frozen.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        first = await asyncio.wait_for(honest.work(), 60)
        await coordinator.says("frozen is gone")
        assert time.monotonic() - began < 30, "keepalive of 3 s should have found it"
        second, state = await asyncio.wait_for(honest.receive_assign(), 60)
        assert second.round > first.round
        mark = len(frozen.lines)
        frozen.send_signal(signal.SIGCONT)
        await frozen.says("enrolled as frozen", after=mark)
        await honest.send_update(second, state)
    shown = (await clients(address))["frozen"]
    assert shown.state != admin_pb2.Client.STATE_OFFLINE


async def test_a_worker_that_never_answers_costs_a_round_no_more_than_its_deadline(
    processes: Processes,
) -> None:
    _, address = await processes.coordinator(
        "--rounds", "2", "--rounds-min-clients", "2", "--rounds-deadline", "1", "--linger", "none"
    )
    layout = Layout.flat(1000)
    async with (
        ProtocolClient(address, "silent", layout) as silent,
        ProtocolClient(address, "honest", layout) as honest,
    ):
        await silent.hello()
        await honest.hello()
        await silent.send_initial()
        held, state = await silent.receive_assign()
        for _ in range(2):
            await asyncio.wait_for(honest.work(), 60)
        await honest.expect(pb.CoordinatorBye)
        assert held.round == 1 and state.size == 1000
    rounds = await closed_rounds(address)
    assert [list(closed.worker_ids) for closed in rounds] == [["honest"], ["honest"]]
    assert rounds[0].closed_by == admin_pb2.Round.CLOSED_BY_DEADLINE


async def test_a_worker_that_stops_reading_is_cut_off_and_costs_no_memory(processes: Processes) -> None:
    coordinator, address = await processes.coordinator(
        "--rounds", "12", "--rounds-min-clients", "2", "--rounds-deadline", "0.2", *QUICK, "--linger", "none"
    )
    layout = Layout.flat(4 << 20)
    async with (
        ProtocolClient(address, "deaf", layout, growing=False) as deaf,
        ProtocolClient(address, "honest", layout) as honest,
    ):
        await deaf.hello()
        await honest.hello()
        await deaf.send_initial()
        for _ in range(4):
            await asyncio.wait_for(honest.work(), 60)
        before = coordinator.peak_memory()
        for _ in range(8):
            await asyncio.wait_for(honest.work(), 60)
        await coordinator.says("session of deaf ended: it does not take what it is sent")
        assert coordinator.peak_memory() - before < 3 * layout.nbytes, "it kept copies for the deaf one"
    listed = await clients(address)
    assert listed["honest"].updates_accepted == 12
    assert listed["deaf"].last_error.type == "ProtocolError"


async def test_a_run_survives_workers_that_come_and_go_all_the_time(processes: Processes) -> None:
    coordinator, address = await processes.coordinator("--rounds", "20", "--rounds-min-clients", "3")
    layout = Layout.flat(1000)

    async def wavering(name: str, nth: int) -> None:
        """Breaks off at another step of the protocol each time."""
        async with ProtocolClient(address, name, layout) as client:
            for visit in range(1000):
                await client.hello()
                if visit % 4 != nth:
                    assign, state = await client.receive_assign()
                    await client.send(update=client.update_header(assign, state))
                    if visit % 4 == 3:
                        for message in encode(state):
                            await client.send_raw(message)
                client.drop()
                client.open()

    async with ProtocolClient(address, "steady", layout) as steady:
        await steady.hello()
        await steady.send_initial(np.zeros(1000, np.float32))
        others = [asyncio.create_task(wavering(f"w{n}", n)) for n in range(3)]
        for _ in range(20):
            await asyncio.wait_for(steady.work(), 60)
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
    assert await coordinator.exits() == 0
    assert load_model(processes.model("last"))[2]["version"] == "20"
    assert not [line for line in coordinator.lines if "Traceback" in line or "CRITICAL" in line]
