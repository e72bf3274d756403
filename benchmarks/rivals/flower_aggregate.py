"""Flower's own weighted mean, in a process of Flower's environment that waits for its turns."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from benchmarks.harness import Contender
from benchmarks.rivals.environment import environment, version
from benchmarks.rivals.watch import RivalError

SCRIPT = Path(__file__).parent / "inside" / "flower_aggregate.py"


@contextmanager
def flower_aggregate(clients: int, parameters: int) -> Iterator[Contender]:
    """A contender that has Flower average so many updates."""
    scripts = environment("flower", "flwr")
    process = subprocess.Popen(
        [scripts / "python", SCRIPT, str(clients), str(parameters)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        _answer(process.stdout)
        yield Contender(f"flwr {version(scripts, 'flwr')} aggregate", lambda: _ask(process))
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _ask(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    _answer(process.stdout)


def _answer(output: IO[str]) -> None:
    if not output.readline():
        raise RivalError("Flower's aggregate could not be run")
