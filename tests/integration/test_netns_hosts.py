"""Coordinator and workers on hosts of their own: processes in network namespaces, real faults between."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from netns import SECONDS, Host, Network
from processes import READY, Command, Processes

from fedecado.common.certificates import issue, make_authority

POINT = ("--task", "process_tasks:point", "--training-probes", "1", "--clients", "2")
PORT = 50051


async def coordinate(processes: Processes, host: Host, *arguments: str) -> Command:
    """A coordinator that listens on its host's own address."""
    command = await processes.within(*host.inside).start(
        "coordinator", "coordinator", "--bind", f"{host.address}:{PORT}", *arguments
    )
    await command.says(READY)
    return command


async def load(processes: Processes, host: Host, coordinator: str, name: str, *arguments: str) -> Command:
    """Simulated workers on a host; they need no torch, and end with the run."""
    return await processes.within(*host.inside).start(
        name, "loadtest", coordinator, "--minutes", "10", "--worker-prefix", name, "--name", name, *arguments
    )


def summary(processes: Processes, name: str) -> dict[str, Any]:
    file = processes.folder / "runs" / name / "results.json"
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))["summary"]
    return found


def certified(folder: Path, name: str) -> tuple[str, ...]:
    files = {"ca": folder / "ca.pem", "certificate": folder / f"{name}.pem", "key": folder / f"{name}.key"}
    return tuple(word for what, file in files.items() for word in (f"--network-tls-{what}", str(file)))


async def test_a_run_between_three_hosts_with_certificates(
    processes: Processes, network: Network, tmp_path: Path
) -> None:
    centre, *others = (network.host() for _ in range(3))
    certs = tmp_path / "certs"
    make_authority(certs)
    issue(certs, "coordinator", hosts=[centre.address])
    coordinator = await coordinate(
        processes, centre, "--rounds", "3", "--rounds-min-clients", "2", *certified(certs, "coordinator")
    )
    workers = []
    for number, host in enumerate(others):
        issue(certs, f"w{number}")
        workers.append(
            await processes.within(*host.inside).worker(
                f"{centre.address}:{PORT}", f"w{number}", *POINT, "--index", str(number),
                *certified(certs, f"w{number}"),
            )
        )  # fmt: skip
    assert [await worker.exits() for worker in workers] == [0, 0], processes.text()
    assert await coordinator.exits() == 0
    for number, host in enumerate(others):
        await coordinator.says(rf"w{number} joins from ipv4:{host.address}:")
    await coordinator.says("round 3: 2 updates")


async def test_a_host_cut_off_mid_round_trains_on_comes_back_and_delivers(
    processes: Processes, network: Network, tmp_path: Path
) -> None:
    centre, host = network.host(), network.host()
    gate = tmp_path / "gate"
    quick = ("--network-peer-loss", "3")
    coordinator = await coordinate(
        processes, centre, "--rounds", "1", "--network-insecure", "--linger", "none", *quick
    )
    worker = await processes.within(*host.inside).worker(
        f"{centre.address}:{PORT}", "w0", "--task", "process_tasks:gated", "--task-arg", f"gate={gate}",
        "--training-probes", "1", "--log-level", "debug", "--network-insecure", *quick,
    )  # fmt: skip
    await worker.says("task 1 started")
    host.cut()
    await coordinator.says("w0 is gone")
    await worker.says("not connected|disconnected")
    gate.touch()
    await worker.says("task 1 finished")
    host.mend()
    assert await worker.exits() == 0, processes.text()
    await worker.says("task 1 accepted")
    await coordinator.says("round 1: 1 updates")


async def test_a_slow_line_takes_its_time_and_nothing_is_lost(processes: Processes, network: Network) -> None:
    centre, host = network.host(), network.host()
    host.limit("8mbit")
    await coordinate(processes, centre, "--rounds", "2", "--network-insecure", "--linger", "none")
    kilobytes = 1000
    slow = await load(
        processes, host, f"{centre.address}:{PORT}", "slow", "--workers", "1", "--training-time", "0",
        "--model-kb", str(kilobytes),
    )  # fmt: skip
    assert await slow.exits() == 0, processes.text()
    assert not summary(processes, "slow")["errors"]
    sent, held_back = host.shaped()
    # The first model and two updates went out, and the line held them back.
    assert sent > 3 * kilobytes * 1000 and held_back > 0


async def test_lost_packets_cost_time_alone(processes: Processes, network: Network) -> None:
    centre, host = network.host(), network.host()
    host.lose(0.05)
    await coordinate(
        processes,
        centre,
        "--rounds",
        "10",
        "--rounds-min-clients",
        "4",
        "--network-insecure",
        "--linger",
        "none",
    )
    lossy = await load(
        processes, host, f"{centre.address}:{PORT}", "lossy", "--workers", "4", "--training-time", "0.01",
        "--model-kb", "20",
    )  # fmt: skip
    assert await lossy.exits() == 0, processes.text()
    assert not summary(processes, "lossy")["errors"]
    assert host.lost() > 0


async def test_a_far_host_takes_part(processes: Processes, network: Network) -> None:
    centre, host = network.host(), network.far_host(0.1)
    coordinator = await coordinate(
        processes,
        centre,
        "--rounds",
        "3",
        "--rounds-min-clients",
        "2",
        "--network-insecure",
        "--linger",
        "none",
    )
    far = await load(
        processes, host, f"{centre.address}:{PORT}", "far", "--workers", "2", "--training-time", "0.01",
        "--model-kb", "20",
    )  # fmt: skip
    assert await far.exits() == 0, processes.text()
    found = summary(processes, "far")
    assert not found["errors"]
    # There and back.
    assert found["latency_seconds"]["welcome"]["p50"] > 0.19
    await coordinator.says("round 3: 2 updates")


NGINX = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen {address}:{port} http2;
    client_max_body_size 0; client_body_timeout 1h; grpc_read_timeout 1h; grpc_send_timeout 1h;
    location / {{ grpc_pass grpc://{behind}; }}
  }}
}}
"""


@contextmanager
def proxy(host: Host, behind: str, folder: Path) -> Iterator[str]:
    """nginx on a host, in front of a coordinator; its address."""
    folder.mkdir()
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, address=host.address, port=PORT, behind=behind))
    command = [*host.inside, "nginx", "-p", str(folder), "-c", str(config)]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"{host.address}:{PORT}"
        assert run.poll() is None, (folder / "error.log").read_text()
    finally:
        run.terminate()
        run.wait(SECONDS)


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
async def test_a_run_goes_through_a_proxy(processes: Processes, network: Network, tmp_path: Path) -> None:
    centre, middle, host = (network.host() for _ in range(3))
    coordinator = await coordinate(
        processes,
        centre,
        "--rounds",
        "3",
        "--rounds-min-clients",
        "3",
        "--network-insecure",
        "--linger",
        "none",
    )
    with proxy(middle, f"{centre.address}:{PORT}", tmp_path / "nginx") as address:
        # A worker that is there before its proxy tries again; that is no fault here.
        behind = await load(
            processes, host, address, "behind", "--workers", "3", "--training-time", "0.05",
            "--model-kb", "3000", "--max-errors", "none",
        )  # fmt: skip
        assert await behind.exits() == 0, processes.text()
    await coordinator.says(f"behind-0 joins from ipv4:{middle.address}:")
    await coordinator.says("round 3: 3 updates")
