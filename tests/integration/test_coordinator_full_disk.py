"""A full disk: nothing is acknowledged that could not be kept, and the run goes on when there is room."""

import asyncio
import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from protocol_client import ProtocolClient

from fedecado.common.layout import Layout
from fedecado.server.coordinator import durable
from fedecado.server.rounds import Rules
from fedecado.server.store import Recipe, check, recover
from fedecado.v1 import session_pb2 as pb

LAYOUT = Layout.flat(20_000)
"""Too long for the database, so that an update is a file."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    where = tmp_path / "disk"
    where.mkdir()
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(where)]
    denied = mount is None or os.geteuid() != 0
    if denied or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(1 << 12))


class Alarm(logging.Handler):
    """Set when the coordinator says that it cannot write."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.rang = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "so nothing is acknowledged" in record.getMessage():
            self.rang.set()


async def test_nothing_is_acknowledged_on_a_full_disk_and_all_of_it_later(
    start: Any, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "RETRY_SECONDS", 0.1)
    rules: dict[str, Any] = {"max_rounds": 2}
    plan = {
        "folder": small_disk / "run",
        "recipe": lambda layout: Recipe(layout, "fedecado", Rules(**rules)),
    }
    alarm = Alarm()
    durable.log.addHandler(alarm)
    try:
        async with start(plan=plan, **rules) as coordinator:
            async with ProtocolClient(coordinator.address, "w1", LAYOUT) as client:
                await client.hello()
                await client.send_initial()
                await client.work()
                assign, state = await client.receive_assign()
                fill(small_disk / "ballast")
                await client.send_update(assign, state + 1)
                answer = asyncio.create_task(client.expect(pb.Acknowledge))
                await asyncio.wait_for(alarm.rang.wait(), 30)
                assert not answer.done()
                (small_disk / "ballast").unlink()
                assert (await asyncio.wait_for(answer, 30)).outcome == pb.Acknowledge.OUTCOME_ACCEPTED
                await asyncio.wait_for(coordinator.run.finished.wait(), 30)
    finally:
        durable.log.removeHandler(alarm)
    assert check(small_disk / "run") == []
    with recover(small_disk / "run").store as store:
        assert store.recipe.layout == LAYOUT
