"""A worker killed between its training and the acknowledgement: its next process delivers the update."""

import asyncio
import sqlite3
from contextlib import closing

from processes import Processes, clients, until
from stubborn import Stubborn
from wire_cut import Line

from fedecado.common.layout import Layout
from fedecado.v1 import admin_pb2 as pb

LAYOUT = Layout.flat(int(0.004 * (1 << 20) / 4))
"""Of the task `point`."""
PATIENT = ("--network-peer-loss", "60")


async def test_an_update_survives_the_death_of_its_worker(processes: Processes) -> None:
    both = ("--rounds-min-clients", "2", "--rounds-min-updates", "2", "--rounds", "1", "--linger", "none")
    _, address = await processes.coordinator(*both, *PATIENT, "--store-record")
    flags = ("--task", "process_tasks:point", "--worker-spool", "spool", "--log-level", "debug", *PATIENT)
    async with Line(address) as line:
        worker = await processes.worker(line.address, "w0", *flags)
        await until(address, lambda status: status.clients.enrolled == 1)
        line.hold()
        other = asyncio.create_task(Stubborn(address, 1, LAYOUT).run())
        await worker.says("task 1 finished")
        await worker.kill()
    [kept] = (processes.folder / "spool").glob("*.update")
    state = kept.read_bytes()[-LAYOUT.nbytes :]
    await until(address, lambda status: status.clients.connected == 1 and status.updates_accepted == 1)
    again = await processes.worker(address, "w0", *flags)
    await again.says("task 1 of an earlier process is still to be delivered")
    await again.says("task 1 accepted")
    status = await until(address, lambda status: status.phase == pb.PHASE_FINISHED)
    assert await again.exits() == 0
    await asyncio.wait_for(other, 60)
    assert not any("task 1 finished" in line for line in again.lines)
    assert (status.updates_accepted, status.rounds_closed) == (2, 1)
    assert (await clients(address))["w0"].updates_accepted == 1
    assert list((processes.folder / "spool").iterdir()) == []
    with closing(sqlite3.connect(processes.folder / "runs" / "run" / "store.sqlite")) as database:
        stored = [row[0] for row in database.execute("SELECT inline FROM vectors")]
    assert state in stored
