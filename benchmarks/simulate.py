"""Simulated rounds of 1,000 clients with trivial training, against Flower's simulation on Ray."""

import os
import time
from pathlib import Path

import numpy as np

from benchmarks.rivals.environment import environment, version
from benchmarks.rivals.turns import compare
from benchmarks.rivals.watch import RivalError, durations, running
from fedecado.server.algorithms import make_algorithm
from fedecado.server.federation import Federation
from fedecado.server.rounds import Engine, Rules
from fedecado.simulator import Simulation, draw_fleet
from fedecado.simulator.quadratics import Quadratics

SCRIPT = Path(__file__).parent / "rivals" / "inside" / "flower_simulation.py"
OURS = 6


def run(quick: bool) -> None:
    clients, turns = (100, 1) if quick else (1000, 3)
    try:
        scripts = environment("simulate", "flwr[simulation]")
        runs = {
            "fedecado": lambda _: _ours(clients),
            f"flwr {version(scripts, 'flwr')} on Ray": lambda folder: _flower(scripts, folder, clients, 4),
        }
        compare("simulate", runs, turns, clients=clients)
    except RivalError as error:
        print(f"simulate: skipped; {error}")


def _ours(clients: int) -> list[float]:
    """All clients take part in every round, as the rival's do; each makes one gradient step."""
    rules = Rules(max_rounds=OURS, min_clients=clients)
    workload = Quadratics(clients)
    federation = Federation(Engine(rules), make_algorithm("fedecado"), workload.layout, workload.initial())
    fleet = draw_fleet(clients, (0.01, 0.01), (1, 1))
    moments: list[float] = []
    Simulation(
        federation,
        workload,
        fleet,
        evaluate_every=OURS + 1,
        watch=lambda _: moments.append(time.perf_counter()),
    ).run()
    return np.diff(moments).tolist()


def _flower(scripts: Path, folder: Path, clients: int, rounds: int) -> list[float]:
    times, log = folder / "times", folder / "log"
    own = {
        **{key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"},
        **{"HOME": str(folder), "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"},
        # By default Ray gives up after 30 s, which on a busy machine is before its own processes are there.
        "RAY_raylet_start_wait_time_s": "300",
    }
    command: list[str | Path] = [scripts / "python", SCRIPT, str(clients), str(rounds), times]
    with running(command, log, own):
        return durations(times, rounds, within=360.0 + 60.0 * rounds, log=log)
