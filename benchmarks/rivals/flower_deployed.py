"""Flower in its deployment mode on this machine: a SuperLink, SuperNodes, and `flwr run`."""

import os
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.rivals.watch import RivalError, durations, running

APP = Path(__file__).parent / "inside" / "flower_app"


def flower_rounds(scripts: Path, folder: Path, nodes: int, parameters: int, rounds: int) -> list[float]:
    """Seconds of each round; the first, in which processes start for the first time, is left out."""
    times, home, port = folder / "times", folder / "home", free_port()
    home.mkdir()
    address = f"127.0.0.1:{port}"
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "bench"\n\n[superlink.bench]\naddress = "{address}"\ninsecure = true\n'
    )
    own = {**os.environ, "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0"}
    own["PATH"] = f"{scripts}:{own['PATH']}"
    with ExitStack() as stack:
        link: list[str | Path] = [
            *(scripts / "flower-superlink", "--insecure", "--disable-runtime-dependency-installation"),
            *("--host", "127.0.0.1", "--port", str(port)),
        ]
        stack.enter_context(running(link, folder / "superlink.log", own))
        _wait_for_port(port)
        for node in range(nodes):
            command: list[str | Path] = [
                *(scripts / "flower-supernode", "--insecure", "--superlink", address),
                *("--port", str(free_port()), "--node-config", f"partition-id={node}"),
            ]
            stack.enter_context(running(command, folder / f"supernode-{node}.log", own))
        config = f"rounds={rounds} nodes={nodes} parameters={parameters} times='{times}'"
        command = [scripts / "flwr", "run", APP, "bench", "--run-config", config]
        subprocess.run(command, env=own, check=True, cwd=folder, capture_output=True)
        return durations(times, rounds, within=60.0 + 60.0 * rounds, log=folder / "superlink.log")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for_port(port: int, within: float = 60.0) -> None:
    until = time.monotonic() + within
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RivalError(f"nothing listens on port {port} after {within:g} s")
