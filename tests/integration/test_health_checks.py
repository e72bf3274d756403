"""Health checks in plain text of processes that otherwise speak mutual TLS, or listen on nothing."""

import asyncio
import re
import signal
from pathlib import Path
from typing import Any

from processes import Processes, until

from fedecado.cli.health import probe
from fedecado.common.certificates import issue, make_authority
from fedecado.common.tls import TlsFiles

POINT = ("--task", "process_tasks:point", "--training-probes", "1")
HEALTH = ("--network-health-bind", "127.0.0.1:0")


async def test_a_coordinator_with_mutual_tls_answers_probes_that_show_no_certificate(
    start: Any, tmp_path: Path
) -> None:
    make_authority(tmp_path)
    issue(tmp_path, "coordinator", hosts=["localhost"])
    tls = TlsFiles(*(tmp_path / name for name in ("ca.pem", "coordinator.pem", "coordinator.key")))
    async with start(plan={"tls": tls, "health": "127.0.0.1:0"}) as coordinator:
        address = coordinator.health.address
        assert await asyncio.to_thread(probe, address, "ready")
        coordinator.stop()
        assert not coordinator.health.ready(), "who is told to stop gets no more workers"
    assert not await asyncio.to_thread(probe, address, "alive")


async def test_a_worker_is_ready_while_a_coordinator_knows_it_and_alive_without_one(
    processes: Processes,
) -> None:
    coordinator, address = await processes.coordinator("--rounds", "none")
    worker = await processes.worker(address, "w1", *POINT, *HEALTH, "--network-peer-loss", "3")
    line = await worker.says("health checks are answered on ")
    found = re.search(r"127\.0\.0\.1:\d+", line)
    assert found is not None
    health = found[0]

    await until(address, lambda status: status.rounds_closed >= 1)
    assert await asyncio.to_thread(probe, health, "ready")
    coordinator.send_signal(signal.SIGTERM)
    assert await coordinator.exits() == 0
    await worker.says("connected: ")
    assert not await asyncio.to_thread(probe, health, "ready")
    assert await asyncio.to_thread(probe, health, "alive")
    worker.send_signal(signal.SIGTERM)
    assert await worker.exits() == 0
