"""A worker's stream, read without a network."""

import asyncio
import weakref
from typing import Any

import numpy as np
import pytest

from fedecado.common.layout import Layout, Vector
from fedecado.common.timeouts import Timeouts
from fedecado.common.wire import BulkChunk, encode, parse_worker_message
from fedecado.server.coordinator.inbox import Arrival, Inbox, Received
from fedecado.server.coordinator.quotas import Limits, Meter
from fedecado.server.coordinator.session import Session
from fedecado.v1 import session_pb2 as pb

LAYOUT = Layout.flat(1000)


class Stream:
    """Gives out messages; `waits` when it has no more."""

    def __init__(self, messages: list[Any]) -> None:
        self._messages, self.waits = iter(messages), asyncio.Event()

    async def write(self, _: Any) -> None:
        await asyncio.Future()

    async def read(self) -> Any:
        for message in self._messages:
            return message
        self.waits.set()
        return await asyncio.Future()


def session_on(stream: Stream, timeouts: Timeouts | None = None) -> Session:
    meter = Meter(Limits(), None, lambda: 0.0)
    return Session(stream, timeouts or Timeouts(), Inbox(lambda: LAYOUT), meter, 1.0)


async def test_a_worker_that_does_not_take_a_message_is_given_up() -> None:
    session = session_on(Stream([]), Timeouts(peer_loss=0.1))
    session.send(pb.Cancel(task_id=1))
    with pytest.raises(TimeoutError):
        await session.write_all()


async def test_a_vector_is_let_go_when_it_was_taken() -> None:
    header = pb.Update(layout_digest=LAYOUT.digest, state_bytes=LAYOUT.nbytes)
    chunks = [parse_worker_message(data) for data in encode(np.ones(1000, np.float32))]
    stream = Stream([pb.WorkerMessage(update=header), *chunks])
    session = session_on(stream)
    seen: list[weakref.ref[Vector]] = []

    def take(arrival: Arrival) -> None:
        assert isinstance(arrival, Received)
        seen.append(weakref.ref(arrival.vector))

    async def read() -> None:
        async for arrival in session.arrivals():
            take(arrival)
            del arrival

    reading = asyncio.create_task(read())
    await stream.waits.wait()
    assert [found() for found in seen] == [None]
    reading.cancel()


async def test_a_message_is_let_go_before_the_next_one_is_waited_for() -> None:
    """So that its memory, which is in cache, takes the next one."""
    header = pb.Update(layout_digest=LAYOUT.digest, state_bytes=LAYOUT.nbytes)
    chunk = next(encode(np.ones(1000, np.float32)))
    message = parse_worker_message(chunk)
    assert isinstance(message, BulkChunk)
    data = weakref.ref(message.data)
    stream = Stream([pb.WorkerMessage(update=header), message])
    del message
    arrivals = session_on(stream).arrivals()
    reading = asyncio.ensure_future(anext(arrivals))
    await stream.waits.wait()
    assert data() is None
    reading.cancel()
