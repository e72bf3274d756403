"""Processes of rivals: started with all their children in a group, watched, and ended together."""

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

ENDING = 15.0
"""Seconds to end in good order."""


class RivalError(Exception):
    """The rival did not run; the message has the end of its log."""


@contextmanager
def running(
    command: Sequence[str | Path], log: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A process and its children, all ended on leaving."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, cwd=log.parent, start_new_session=True
        )
    try:
        yield process
    finally:
        for number in (15, 9):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDING)


def durations(times: Path, rounds: int, within: float, log: Path) -> list[float]:
    """Differences of the moments that `rounds` rounds note in a file, without the first."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        moments = [float(line) for line in times.read_text().split()] if times.exists() else []
        if len(moments) > rounds:
            return [after - before for before, after in pairwise(moments[1:])]
        time.sleep(0.2)
    end = log.read_text(errors="replace")[-2000:] if log.exists() else "(no log)"
    raise RivalError(f"no {rounds} rounds within {within:g} s; the end of {log.name}:\n{end}")
