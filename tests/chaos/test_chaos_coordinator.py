"""A coordinator that is stopped or killed: its model is kept, its workers wait and go on with the next."""

import asyncio
import signal

import pytest
from processes import Processes, until
from protocol_client import ProtocolClient

from fedecado.common.layout import Layout
from fedecado.common.model_file import load_model
from fedecado.v1 import session_pb2 as pb

POINT = ("--task", "process_tasks:point", "--training-probes", "1", "--clients", "2")
QUICK = ("--network-peer-loss", "3")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_coordinator_stopped_in_mid_round_saves_its_model_and_sends_its_workers_away_for_now(
    processes: Processes, number: signal.Signals
) -> None:
    coordinator, address = await processes.coordinator("--rounds-min-clients", "2")
    layout = Layout.flat(1000)
    async with (
        ProtocolClient(address, "one", layout) as one,
        ProtocolClient(address, "two", layout) as two,
    ):
        await one.hello()
        await two.hello()
        await one.send_initial()
        await asyncio.gather(one.work(), two.work())
        await one.work()
        await two.receive_assign()
        coordinator.send_signal(number)
        for client in (one, two):
            while (message := await client.receive()) is not None:
                last = message
            assert isinstance(last, pb.CoordinatorBye)
            assert last.reason == pb.CoordinatorBye.REASON_SHUTTING_DOWN
    assert await coordinator.exits(10) == 0, coordinator.text
    assert load_model(processes.model("last"))[2]["version"] == "1"


async def test_someone_who_watches_does_not_hold_up_the_end_of_a_coordinator(processes: Processes) -> None:
    coordinator, address = await processes.coordinator()
    watching = await processes.start("watch", "status", "--watch", "--json", "--coordinator", address)
    await watching.says("waiting")
    coordinator.send_signal(signal.SIGTERM)
    assert await coordinator.exits(10) == 0, "it waited for the watcher to go"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_workers_outlive_their_coordinator_and_go_on_with_the_next(
    processes: Processes, number: signal.Signals
) -> None:
    rules = ("--rounds-min-clients", "2", *QUICK)
    first, address = await processes.coordinator("--rounds", "100000", *rules)
    workers = [await processes.worker(address, f"w{i}", *POINT, *QUICK, "--index", str(i)) for i in range(2)]
    await until(address, lambda status: status.rounds_closed >= 2)
    marks = [len(worker.lines) for worker in workers]
    first.send_signal(number)
    assert await first.exits() == (0 if number == signal.SIGTERM else -signal.SIGKILL), first.text
    for worker in workers:
        await worker.says("disconnected|not connected")
    kept = []
    if number == signal.SIGTERM:
        assert int(load_model(processes.model("last"))[2]["version"]) >= 2
        kept = ["--initial", str(processes.model("last"))]
    # Under another name, so that it is another run and not the old one gone on with.
    another = ("--name", "another", "--rounds", "2", *rules, *kept)
    second, _ = await processes.coordinator(*another, bind=address)
    assert [await command.exits() for command in (second, *workers)] == [0, 0, 0], processes.text()
    for worker, mark in zip(workers, marks, strict=True):
        await worker.says("enrolled as", after=mark)
    assert load_model(processes.model("last", run="another"))[2]["version"] == "2"


async def test_a_coordinator_can_be_stopped_before_anyone_has_come(processes: Processes) -> None:
    coordinator, _ = await processes.coordinator()
    coordinator.send_signal(signal.SIGTERM)
    assert await coordinator.exits(10) == 0
    assert not processes.model("last").exists()
