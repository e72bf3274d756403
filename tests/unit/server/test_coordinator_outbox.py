"""What waits for a worker leaves in order, and its reader sleeps while nothing does."""

import asyncio

import pytest

from fedecado.server.coordinator.outbox import Outbox


async def test_parcels_come_out_in_order_with_the_end_last() -> None:
    outbox = Outbox()
    for parcel in ((b"a",), (b"b",), None):
        outbox.put(parcel)
    assert len(outbox) == 3
    assert [await outbox.get() for _ in range(3)] == [(b"a",), (b"b",), None]
    assert len(outbox) == 0


async def test_a_reader_waits_until_there_is_something() -> None:
    outbox = Outbox()
    reader = asyncio.create_task(outbox.get())
    await asyncio.sleep(0)
    assert not reader.done()
    outbox.put((b"a",))
    outbox.put((b"b",))  # before the reader has had its turn
    assert await reader == (b"a",)
    assert await outbox.get() == (b"b",)


async def test_a_reader_that_was_cancelled_takes_nothing_away() -> None:
    outbox = Outbox()
    reader = asyncio.create_task(outbox.get())
    await asyncio.sleep(0)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    outbox.put((b"a",))
    assert await outbox.get() == (b"a",)
