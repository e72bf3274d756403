"""Rounds of a coordinator with worker processes, as `fedecado coordinator` and `fedecado worker` run them."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import grpc

from benchmarks.servers import coordinator, environment
from fedecado.v1 import admin_pb2 as pb
from fedecado.v1.admin_pb2_grpc import AdminServiceStub

PATIENCE = 600.0


def our_rounds(folder: Path, workers: int, parameters: int, rounds: int, *, durable: bool) -> list[float]:
    """Seconds of each round, but the first."""
    counted = ("--rounds", str(rounds), "--rounds-min-clients", str(workers))
    with coordinator(*counted, durable=durable) as server, ExitStack() as stack:
        started = [
            stack.enter_context(worker(server.address, number, parameters, folder))
            for number in range(workers)
        ]
        for process in started:
            process.wait(PATIENCE)
        closed = _closed(server.address)
    return [after - before for before, after in pairwise(closed)]


@contextmanager
def worker(address: str, number: int, parameters: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process that trains next to nothing, and does not measure how well."""
    command = [
        *(sys.executable, "-m", "fedecado.cli", "worker", "--coordinator", address),
        *("--worker-id", f"w{number}", "--worker-threads", "1", "--training-probes", "1"),
        *("--training-loss-samples", "0"),
        *("--task", "benchmarks.tasks:noop", "--task-arg", f"parameters={parameters}"),
    ]
    with Path(folder, f"worker-{number}.log").open("wb") as log:
        process = subprocess.Popen(
            command, stderr=log, cwd=folder, env={**environment(), "OMP_NUM_THREADS": "1"}
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def rounds_closed(address: str) -> int:
    """How many rounds there have been."""
    with grpc.insecure_channel(address) as channel:
        return AdminServiceStub(channel).Status(pb.StatusRequest(), timeout=PATIENCE).status.rounds_closed


def _closed(address: str) -> list[float]:
    """When the rounds so far were closed."""
    moments: list[float] = []
    with grpc.insecure_channel(address) as channel:
        service = AdminServiceStub(channel)
        while True:
            listed = service.ListRounds(pb.ListRoundsRequest(after=len(moments)), timeout=PATIENCE)
            moments += [closed.closed.ToMicroseconds() / 1e6 for closed in listed.rounds]
            if not listed.has_more:
                return moments
