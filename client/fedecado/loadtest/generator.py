"""A generator process: a plan comes in on standard input, a line of JSON goes out for every second.

`python -m fedecado.loadtest.generator`; SIGTERM, or the end of standard input, ends it in good order.
"""

import asyncio
import json
import logging
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from typing import Any, Final

import uvloop

from fedecado.loadtest.plan import Plan
from fedecado.loadtest.swarm import Swarm

SECOND: Final = 1.0
TICK: Final = 0.05
"""Between two looks at how late this process's own event loop is."""
_SPARE_FILES: Final = 64


def main() -> int:
    # A thousand workers' log lines help nobody; what goes wrong is counted.
    logging.getLogger("fedecado").setLevel(logging.CRITICAL)
    plan = Plan.from_json(sys.stdin.readline())
    allow_files(plan.count)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(plan))
    return 0


def allow_files(connections: int) -> bool:
    """Raise the limit of open files as far as that many connections need; whether it is enough."""
    wanted = connections + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft == resource.RLIM_INFINITY or soft >= wanted


async def _run(plan: Plan) -> None:
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    # The parent holds the other end: if it dies, this ends, too.
    loop.add_reader(sys.stdin.fileno(), _heard, loop, stopping)
    swarm = Swarm(plan)
    aside = [asyncio.create_task(_report(swarm)), asyncio.create_task(_feel_lag(swarm))]
    try:
        await swarm.run(stopping)
    finally:
        for task in aside:
            task.cancel()
        await asyncio.gather(*aside, return_exceptions=True)
        _write(swarm, 0.0)


def _heard(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        stopping.set()


async def _report(swarm: Swarm) -> None:
    due = time.perf_counter()
    while True:
        due += SECOND
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        late = time.perf_counter() - due
        _write(swarm, late)
        if late > SECOND:
            due = time.perf_counter()


async def _feel_lag(swarm: Swarm) -> None:
    """A generator that is late itself measures itself; so it measures that, too."""
    while True:
        due = time.perf_counter() + TICK
        await asyncio.sleep(TICK)
        swarm.honest.current.latencies["lag"].add(max(0.0, time.perf_counter() - due))


def _write(swarm: Swarm, late: float) -> None:
    """What happened since the last line; `late` tells whether this process can keep up."""
    standing = swarm.standing
    line: dict[str, Any] = {
        "connected": standing.connected,
        "started": standing.started,
        "ended": standing.ended,
        "round": swarm.rounds.latest,
        "cpu": time.process_time(),
        "late": late,
        "honest": swarm.honest.take().plain(),
        "bad": swarm.bad.take().plain(),
    }
    # A pipe that nobody reads would block here; then the parent is gone, and the end of input says so.
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
