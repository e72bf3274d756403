"""Simulated workers against a real coordinator: the good, the slow, the lost and the bad."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE

from fedecado.common.certificates import issue, make_authority
from fedecado.common.timeouts import Timeouts
from fedecado.loadtest.generators import Generators
from fedecado.loadtest.plan import Mischief, Plan, TlsPattern
from fedecado.loadtest.swarm import Swarm
from fedecado.loadtest.tally import Tally


async def finish(swarm: Swarm) -> tuple[Tally, Tally]:
    """Let the workers work until the run is over; what the honest and the bad ones saw."""
    async with asyncio.timeout(PATIENCE):
        await swarm.run(asyncio.Event())
    return swarm.honest.current, swarm.bad.current


STAYS = {"linger": None}
"""Whoever comes back after the last round is told that it was the last."""


def plan(coordinator: Any, count: int, **changes: Any) -> Plan:
    fields = {"peer_loss": 15.0, "parameters": 500, "training": "0.02", "connect_rate": 1000.0, **changes}
    return Plan(coordinator.address, 0, count, **fields)


async def test_every_update_of_every_worker_is_counted_and_timed(start: Any) -> None:
    async with start(max_rounds=4, min_clients=12, timeouts=Timeouts()) as coordinator:
        honest, bad = await finish(Swarm(plan(coordinator, 12)))
        assert coordinator.run.journal.accepted == honest.counts["accepted"] == 48
    assert not honest.errors and not bad.counts
    assert honest.counts["assigned"] == 48 and honest.counts["finished"] == honest.counts["welcomes"] == 12
    assert {name: len(histogram) for name, histogram in honest.latencies.items()} == {
        "welcome": 12, "assign": 48, "receive": 48, "push": 48, "lag": 0,
    }  # fmt: skip
    assert honest.counts["bytes_out"] > 48 * 2000 < honest.counts["bytes_in"]


async def test_a_storm_cuts_all_lines_and_costs_no_update(start: Any) -> None:
    async with start(max_rounds=40, min_clients=8, plan=STAYS, timeouts=Timeouts()) as coordinator:
        honest, _ = await finish(Swarm(plan(coordinator, 8, storm_every=0.3)))
        rounds, accepted = coordinator.run.journal.rounds, coordinator.run.journal.accepted
    assert len(rounds) == 40
    assert honest.counts["cuts"] >= 8 and honest.counts["welcomes"] > 8
    assert not honest.errors
    # What arrived but whose answer was cut off is a duplicate or already there; it counts once.
    assert accepted >= honest.counts["accepted"]
    # While the last round is computed one update of each is still taken, for a round that never comes.
    assert accepted - 8 <= sum(len(closed.workers) for closed in rounds) <= accepted


async def test_workers_that_die_come_back_without_their_task(start: Any) -> None:
    async with start(max_rounds=15, min_clients=8, plan=STAYS, timeouts=Timeouts()) as coordinator:
        honest, _ = await finish(Swarm(plan(coordinator, 8, dropouts=0.3, away=0.05)))
    assert honest.counts["deaths"] > 0
    assert honest.counts["welcomes"] > 8
    assert not {kind for kind in honest.errors if kind != "worker refused: worker_id_taken"}


async def test_stragglers_take_longer(start: Any) -> None:
    async with start(max_rounds=1, min_clients=12, timeouts=Timeouts()) as coordinator:
        await finish(Swarm(plan(coordinator, 12, stragglers=0.5, straggler_factor=20.0)))
        seconds = sorted(member.last_seconds for member in coordinator.run.members.by_id.values())
    assert seconds[0] == pytest.approx(0.02) and seconds[-1] == pytest.approx(0.4)


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not reached():  # noqa: ASYNC110 - tallies are plain numbers; the wait is bounded
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("mischief", "seen"),
    [
        ("nan", "update refused: non_finite"),
        ("damaged", "update refused: damaged"),
        ("garbage", "worker refused: bad_message"),
        ("wrong-model", "worker refused: layout"),
    ],
)
async def test_a_bad_actor_is_told_off_and_the_others_go_on(
    start: Any, mischief: Mischief, seen: str
) -> None:
    stopping = asyncio.Event()
    async with start(max_rounds=None, mode="stream", timeouts=Timeouts()) as coordinator:
        swarm = Swarm(plan(coordinator, 4, bad={3: mischief}))
        running = asyncio.create_task(swarm.run(stopping))
        await until(lambda: swarm.bad.current.errors[seen] > 0)
        before = swarm.honest.current.counts["accepted"]
        await until(lambda: swarm.honest.current.counts["accepted"] > before + 6)
        stopping.set()
        await asyncio.wait_for(running, PATIENCE)
    assert not swarm.honest.current.errors
    assert swarm.standing.ended == 4


async def test_silent_and_stalling_ones_hold_nobody_up_where_rounds_have_a_deadline(start: Any) -> None:
    async with start(max_rounds=3, min_clients=5, deadline=0.5, timeouts=Timeouts()) as coordinator:
        honest, bad = await finish_with_the_honest(
            Swarm(plan(coordinator, 5, bad={3: "silent", 4: "stalling"})), coordinator
        )
        assert len(coordinator.run.journal.rounds) == 3
    assert not honest.errors and honest.counts["accepted"] >= 3
    assert not bad.counts["accepted"]


async def finish_with_the_honest(swarm: Swarm, coordinator: Any) -> tuple[Tally, Tally]:
    stopping = asyncio.Event()
    running = asyncio.create_task(swarm.run(stopping))
    await asyncio.wait_for(coordinator.run.finished.wait(), PATIENCE)
    stopping.set()
    await asyncio.wait_for(running, PATIENCE)
    return swarm.honest.current, swarm.bad.current


async def test_each_worker_shows_its_own_certificate(start: Any, tmp_path: Path) -> None:
    make_authority(tmp_path)
    issue(tmp_path, "coordinator", hosts=["127.0.0.1"])
    for number in range(3):
        issue(tmp_path, f"load-{number}")
    tls = TlsPattern(str(tmp_path / "ca.pem"), str(tmp_path / "{id}.pem"), str(tmp_path / "{id}.key"))
    server = {"tls": tls.files("coordinator")}
    async with start(max_rounds=2, min_clients=3, plan=server, timeouts=Timeouts()) as coordinator:
        honest, _ = await finish(Swarm(plan(coordinator, 3, tls=tls)))
    assert honest.counts["accepted"] == 6 and not honest.errors


async def test_a_coordinator_that_is_gone_is_an_error(start: Any) -> None:
    stopping = asyncio.Event()
    async with start(max_rounds=None, timeouts=Timeouts()) as coordinator:
        swarm = Swarm(plan(coordinator, 2))
        running = asyncio.create_task(swarm.run(stopping))
        await until(lambda: swarm.honest.current.counts["accepted"] > 0)
    await until(lambda: swarm.honest.current.errors["disconnected: unavailable"] > 0)
    stopping.set()
    await asyncio.wait_for(running, PATIENCE)


async def test_generators_that_do_not_end_in_time_are_ended_and_stopping_again_is_nothing(
    tmp_path: Path,
) -> None:
    async with Generators([Plan("127.0.0.1:1", 0, 3)], tmp_path, patience=0.0) as generators:
        await generators.stop()  # and again at the end
