"""Large models and many workers: bounded memory, and a coordinator that always answers."""

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from processes import Processes, clients, closed_rounds
from protocol_client import ProtocolClient

from fedecado.common.layout import Layout
from fedecado.common.model_file import load_model
from fedecado.server import federation
from fedecado.server.federation import Federation
from fedecado.v1 import session_pb2 as pb

POINT = ("--task", "process_tasks:point", "--training-probes", "1", "--clients", "2")
MEBIBYTE = 1 << 20


async def test_a_model_of_300_mb_goes_through_a_round_in_bounded_memory(processes: Processes) -> None:
    """Measured: 13.1 models at the peak for two workers.

    Each update costs up to 5 (itself, its displacement, the worker's old and new flow and a row between),
    and the centre 5 (two versions, the frames of one, and the sum of the flows in double precision).
    """
    megabytes = 300
    coordinator, address = await processes.coordinator(
        "--rounds", "1", "--rounds-min-clients", "2", "--linger", "none"
    )
    before = coordinator.peak_memory()
    large = (*POINT, "--task-arg", f"megabytes={megabytes}")
    workers = [await processes.worker(address, f"w{i}", *large, "--index", str(i)) for i in range(2)]
    assert [await worker.exits() for worker in workers] == [0, 0], processes.text()
    (closed,) = await closed_rounds(address)
    assert sorted(closed.worker_ids) == ["w0", "w1"]
    models = (coordinator.peak_memory() - before) / (megabytes * MEBIBYTE)
    print(f"peak memory of the coordinator: {models:.2f} models")
    assert models < 5 * len(workers) + 5, f"{models:.1f} models in memory"
    coordinator.process.terminate()
    assert await coordinator.exits() == 0
    layout, state, _ = load_model(processes.model("last"))
    assert layout.nbytes == megabytes * MEBIBYTE
    assert (state[:4] > 0).all() and not state[4:].any()


@pytest.mark.huge
@pytest.mark.timeout(900)
async def test_a_model_of_more_than_2_gib_goes_through_a_round(
    processes: Processes, request: pytest.FixtureRequest
) -> None:
    if "huge" not in request.config.getoption("-m"):
        pytest.skip("needs 20 GB of memory; run with -m huge")
    layout = Layout.flat((2100 * MEBIBYTE) // 4)
    coordinator, address = await processes.coordinator(
        "--rounds", "1", "--linger", "none", "--algorithm", "fedavg"
    )
    async with ProtocolClient(address, "w0", layout) as client:
        await client.hello()
        await client.send_initial()
        assign, state = await client.receive_assign()
        state += 1
        await client.send_update(assign, state)
        del state
        await client.expect(pb.Acknowledge)
        await client.expect(pb.CoordinatorBye)
    print(f"peak memory of the coordinator: {coordinator.peak_memory() / layout.nbytes:.2f} models")
    coordinator.process.terminate()
    assert await coordinator.exits(600) == 0
    assert processes.model("last").stat().st_size > 2 << 30


async def _train(client: ProtocolClient, rounds: int) -> None:
    async with client:
        await client.hello()
        for _ in range(rounds):
            await client.work()
        await client.expect(pb.CoordinatorBye)


async def test_a_hundred_workers_are_all_counted_in_every_round(processes: Processes) -> None:
    _, address = await processes.coordinator(
        "--rounds", "5", "--rounds-min-clients", "100", "--linger", "none"
    )
    async with ProtocolClient(address, "starter", Layout.flat(1000)) as starter:
        await starter.hello()
        await starter.send_initial()
    async with asyncio.timeout(100), asyncio.TaskGroup() as group:
        for n in range(100):
            group.create_task(_train(ProtocolClient(address, f"w{n}", Layout.flat(1000)), 5))
    assert [len(closed.worker_ids) for closed in await closed_rounds(address)] == [100] * 5
    listed = await clients(address)
    assert all(listed[f"w{n}"].updates_accepted == 5 for n in range(100))


async def test_the_event_loop_answers_while_large_updates_are_aggregated(
    start: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocking: list[str] = []
    for name in ("offer", "absorb", "aggregate", "commit"):
        monkeypatch.setattr(Federation, name, _noting(name, getattr(Federation, name), blocking))
    # `check` itself is welcome in the loop where the length that was taken on arrival spares it the vector.
    looking = "_require_usable"
    monkeypatch.setattr(federation, looking, _noting(looking, getattr(federation, looking), blocking))
    layout = Layout.flat(50 * MEBIBYTE // 4)
    state = np.random.default_rng(0).standard_normal(layout.size, np.float32)
    async with start(max_rounds=1, min_clients=3) as coordinator:
        async with (
            connect(coordinator, "w0", layout) as one,
            connect(coordinator, "w1", layout) as two,
            connect(coordinator, "w2", layout) as three,
        ):
            await one.send_initial(state)
            offers = [await client.receive_assign() for client in (one, two, three)]
            coordinator.lag.worst = 0.0
            for client, (assign, _) in zip((one, two, three), offers, strict=True):
                await client.send_update(assign, state)
            await asyncio.wait_for(coordinator.run.finished.wait(), 100)
        assert len(coordinator.run.journal.rounds[0].workers) == 3
    assert not blocking, f"worked on long vectors in the event loop: {blocking}"
    # On a busy machine the loop is late through no fault of its own.
    patience = 0.5 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert coordinator.lag.worst < patience, f"the loop stood still for {coordinator.lag.worst:.2f} s"


def _noting(name: str, real: Callable[..., Any], blocking: list[str]) -> Callable[..., Any]:
    """`real`, but calls from the event loop's own thread are noted."""

    def call(*arguments: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            blocking.append(name)
        return real(*arguments)

    return call
