"""`fedecado loadtest` as a process, with generators of its own."""

import json
import signal
from pathlib import Path
from typing import Any

from processes import Processes, clients, until

QUICK = ("--minutes", "10", "--model-kb", "2", "--training-time", "0.02", "--connect-rate", "1000")


def results(folder: Path, name: str = "loadtest") -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "runs" / name / "results.json").read_text("utf-8"))
    return read


async def test_without_an_address_a_coordinator_is_started_judged_and_removed(processes: Processes) -> None:
    command = await processes.start(
        "loadtest", "loadtest", "--workers", "10", *QUICK, "--with-tls", "--min-updates-rate", "1e9",
        "--rounds", "5", "--rounds-min-clients", "10", "--rounds-mode", "rounds", "--json", "copy.json",
    )  # fmt: skip
    assert await command.exits() == 1, command.text
    assert "MISSED" in command.text
    found = results(processes.folder)
    assert found == json.loads((processes.folder / "copy.json").read_text("utf-8"))
    assert [limit["name"] for limit in found["limits"] if not limit["kept"]] == ["min-updates-rate"]
    summary = found["summary"]
    assert summary["ended"] == "the workers had ended" and not summary["errors"]
    assert summary["workers"] == 10 and summary["coordinator_rss_most"] > 10_000_000
    left = {path.name for path in (processes.folder / "runs" / "loadtest").iterdir()}
    assert {"report.html", "results.json", "coordinator.log"} <= left
    assert not {"coordinator", "certs"} & left


async def test_machines_and_processes_share_a_test_by_the_numbers_of_their_workers(
    processes: Processes,
) -> None:
    coordinator, address = await processes.coordinator(
        "--rounds", "3", "--rounds-min-clients", "12", "--linger", "none"
    )
    tests = [
        await processes.start(
            f"machine-{n}", "loadtest", address, "--workers", "6", "--processes", "2", *QUICK,
            "--machine", str(n), "--name", f"m{n}",
        )
        for n in range(2)
    ]  # fmt: skip
    assert [await test.exits() for test in tests] == [0, 0], processes.text()
    assert set(await clients(address)) == {f"load-{n}" for n in range(12)}
    assert not any(results(processes.folder, f"m{n}")["summary"]["errors"] for n in range(2))
    coordinator.process.terminate()
    assert await coordinator.exits() == 0


async def test_workers_leave_with_a_parent_that_is_interrupted_or_killed(processes: Processes) -> None:
    _, address = await processes.coordinator("--rounds", "none")
    asked, killed = [
        await processes.start(
            name, "loadtest", address, "--workers", "4", *QUICK, "--worker-prefix", name, "--name", name
        )
        for name in ("asked", "killed")
    ]
    await until(address, lambda status: status.clients.connected == 8 and status.updates_accepted > 8)
    asked.send_signal(signal.SIGINT)
    await killed.kill()
    assert await asked.exits() == 130, asked.text
    assert results(processes.folder, "asked")["summary"]["ended"] == "interrupted"
    await until(address, lambda status: status.clients.connected == 0)


async def test_nobody_there_is_said_in_one_line(processes: Processes) -> None:
    command = await processes.start(
        "loadtest", "loadtest", "127.0.0.1:1", "--workers", "2", *QUICK, "--network-peer-loss", "0.2"
    )
    assert await command.exits() == 1
    assert "none of 2 workers was welcome" in command.lines[-1], command.text
