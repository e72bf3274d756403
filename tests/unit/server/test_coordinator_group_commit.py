"""What waits for the disk, and how many share a flush."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fedecado.common.errors import StoreError
from fedecado.server.coordinator import durable as module
from fedecado.server.coordinator.beside import Beside
from fedecado.server.coordinator.durable import Durable

PATIENCE = 20.0


class Disk:
    """A store that counts its commits; the first ones may fail."""

    def __init__(self, failures: int = 0) -> None:
        self.durable = self.appended = self.commits = 0
        self._failures = failures

    def note(self, _: dict[str, Any]) -> int:
        self.appended += 1
        return self.appended

    def commit(self) -> int:
        self.commits += 1
        if self.commits <= self._failures:
            raise StoreError("the disk is full")
        self.durable = self.appended
        return self.durable


@asynccontextmanager
async def opened(disk: Any) -> AsyncIterator[Durable]:
    failed: list[BaseException] = []
    beside = Beside(failed.append)
    durable = Durable(beside)
    durable.open(disk)
    async with asyncio.timeout(PATIENCE):
        yield durable
    await beside.settle()
    beside.close()
    assert not failed


def put(durable: Durable, action: Callable[[], None], *, urgent: bool) -> None:
    durable.note({})
    durable.send(action, urgent=urgent)
    durable.flush()


async def test_acknowledgements_and_the_tasks_after_them_share_a_commit() -> None:
    disk, done, told = Disk(), asyncio.Event(), []
    async with opened(disk) as durable:
        for number in range(10):
            put(durable, lambda number=number: told.append(number), urgent=False)  # type: ignore[misc]  # mypy cannot type a default
        assert not told
        put(durable, done.set, urgent=True)
        await done.wait()
    assert told == list(range(10))
    assert disk.commits == 1


async def test_an_acknowledgement_with_nothing_after_it_waits_only_a_little() -> None:
    disk, done = Disk(), asyncio.Event()
    async with opened(disk) as durable:
        put(durable, done.set, urgent=False)
        await asyncio.sleep(0)
        assert disk.commits == 0
        await done.wait()
    assert disk.commits == 1


async def test_what_comes_during_a_commit_is_not_forgotten() -> None:
    disk, first, second = Disk(), asyncio.Event(), asyncio.Event()
    async with opened(disk) as durable:
        put(durable, first.set, urgent=True)
        await asyncio.sleep(0)
        put(durable, second.set, urgent=False)
        await first.wait()
        await second.wait()
        assert not durable.waiting


@pytest.mark.parametrize("urgent", [False, True])
async def test_a_failed_commit_is_tried_again(urgent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    disk, done = Disk(failures=2), asyncio.Event()
    async with opened(disk) as durable:
        put(durable, done.set, urgent=urgent)
        await done.wait()
    assert disk.commits == 3
