"""A worker whose coordinator or line fails comes back, with what it holds."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from scripted_coordinator import BIG, LIMIT, Puppet, Signs, Station, quick

from fedecado.client.effects import Leave
from fedecado.common.timeouts import Timeouts
from fedecado.common.wire import BulkChunk
from fedecado.v1.session_pb2 import CoordinatorBye, HeldTask, Refused, RequestInitialState

pytest_plugins = ["scripted_fixtures"]


async def test_an_upload_that_broke_off_is_sent_again_and_not_trained_again(station: Station) -> None:
    puppet = quick(BIG)
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(lambda: puppet))
        line = await station.first_task(puppet)
        await line.expect("update")
        assert isinstance(await line.message(), BulkChunk)
        line.over.set()
        line = await station.coordinator.line()
        hello = await line.welcome()
        assert [(t.task_id, t.state) for t in hello.held_tasks] == [(1, HeldTask.STATE_FINISHED)]
        assert (hello.connection, hello.run_id) == (2, "r")
        _, state = await line.update()
        assert state.shape == (BIG,)
        assert (state == 1).all()
        await line.accept(1)
        await line.finish()
    assert worker.result().code == 0
    assert puppet.runs == [1]


async def test_training_goes_on_while_the_coordinator_is_restarted(station: Station) -> None:
    puppet = Puppet()
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(lambda: puppet))
        line = await station.first_task(puppet)
        assert await asyncio.to_thread(puppet.begun.acquire, timeout=LIMIT), "what is sent need not have come"
        await station.coordinator.kill()
        puppet.go.release()
        await station.coordinator.start()
        line = await station.coordinator.line()
        hello = await line.welcome()
        assert [task.task_id for task in hello.held_tasks] == [1]
        await line.update()
        await line.accept(1)
        await line.finish(CoordinatorBye.REASON_DRAINED)
    assert worker.result().code == 0
    assert puppet.runs == [1]


async def test_a_coordinator_that_shuts_down_is_awaited(station: Station) -> None:
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(quick))
        line = await station.coordinator.line()
        await line.welcome()
        await line.finish(CoordinatorBye.REASON_SHUTTING_DOWN)
        line = await station.coordinator.line()
        await line.welcome()
        await line.finish(CoordinatorBye.REASON_REPLACED)
    assert worker.result().code == 1
    assert "'w1'" in worker.result().reason


async def test_a_refused_worker_retries_only_if_it_may(station: Station) -> None:
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(quick))
        line = await station.coordinator.line()
        await line.expect("hello")
        await line.send(Refused(reason=Refused.REASON_FULL, message="no room", retry=True))
        line.over.set()
        line = await station.coordinator.line()
        await line.expect("hello")
        await line.send(Refused(reason=Refused.REASON_LAYOUT, message="another model"))
        line.over.set()
    assert worker.result() == Leave(1, "the coordinator refused this worker: another model")


async def test_a_coordinator_that_is_away_at_first_is_awaited(station: Station, signs: Signs) -> None:
    await station.coordinator.kill()
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(quick))
        for _ in range(3):
            assert "Connection refused" in await signs.wait("not connected")
        await station.coordinator.start()
        line = await station.coordinator.line()
        assert (await line.welcome()).connection >= 4
        await line.finish()
    assert worker.result().code == 0


async def test_a_coordinator_that_does_not_answer_is_tried_again(station: Station, signs: Signs) -> None:
    station.timeouts = Timeouts(0.3)
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(quick))
        silent = await station.coordinator.line()
        assert "an answer to Hello" in await signs.wait("not connected")
        line = await station.coordinator.line()
        await line.welcome()
        await line.finish()
        silent.over.set()
    assert worker.result().code == 0


@contextlib.contextmanager
def tapped(port: int, cut: threading.Event) -> Iterator[int]:
    """A port that leads to `port`; what connects before `cut` goes dead then, without being closed."""
    ends: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def begin(target: Callable[..., None], *arguments: Any) -> None:
        threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        threads[-1].start()

    def pump(source: socket.socket, sink: socket.socket, dead: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not dead.is_set():
                    sink.sendall(data)

    def accept(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, there = listener.accept()[0], socket.create_connection(("127.0.0.1", port))
                ends.extend((here, there))
                dead = threading.Event() if cut.is_set() else cut
                begin(pump, here, there, dead)
                begin(pump, there, here, dead)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        begin(accept, listener)
        yield listener.getsockname()[1]
        for end in (listener, *ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(LIMIT)
        for end in ends:
            end.close()


async def test_a_line_that_went_dead_is_noticed_and_replaced(station: Station, signs: Signs) -> None:
    """The connection is open, but nothing passes any more: only keepalive can tell."""
    cut, station.timeouts = threading.Event(), Timeouts(0.9)
    with tapped(station.coordinator.port, cut) as station.coordinator.port:
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(station.serve(quick))
            line = await station.coordinator.line()
            await line.welcome()
            await line.send(RequestInitialState())
            await line.expect("initial_state")
            cut.set()
            await signs.wait("disconnected")
            line.over.set()
            line = await station.coordinator.line()
            await line.welcome()
            await line.finish()
        assert worker.result().code == 0


async def test_bytes_that_are_no_message_end_the_connection_only(station: Station, signs: Signs) -> None:
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(station.serve(quick))
        line = await station.coordinator.line()
        await line._context.write(b"\xff\xff\xff")
        assert "no CoordinatorMessage" in await signs.wait("not connected")
        line.over.set()
        line = await station.coordinator.line()
        await line.welcome()
        await line.finish()
    assert worker.result().code == 0
