"""A line to a server that lets workers send only so many bytes per second, as a long one does."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from benchmarks.servers import Server

PIECE, LATE = 1 << 16, 0.02


@contextmanager
def slowed(server: Server, rate: float) -> Iterator[Server]:
    """The same server at an address behind such a line. What it sends is not held up."""
    loop, thread = asyncio.new_event_loop(), None
    try:
        host, _, port = server.address.rpartition(":")
        relay = loop.run_until_complete(
            asyncio.start_server(lambda r, w: _joined(r, w, host, int(port), rate), "127.0.0.1", 0)
        )
        # In a thread of its own: the loop of the workers stands still between measurements.
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        yield replace(server, address=f"127.0.0.1:{relay.sockets[0].getsockname()[1]}")
    finally:
        if thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


async def _joined(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, rate: float
) -> None:
    there, back = await asyncio.open_connection(host, port)
    with suppress(ConnectionError, asyncio.CancelledError):
        await asyncio.gather(_pump(reader, back, rate), _pump(there, writer, None))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rate: float | None) -> None:
    clock, free = asyncio.get_running_loop().time, 0.0
    while data := await reader.read(PIECE):
        if rate is not None:
            # The line is busy with what came before; a rest is not saved up, but for waking up late.
            free = max(free, clock() - LATE) + len(data) / rate
            await asyncio.sleep(free - clock())
        writer.write(data)
        await writer.drain()
    writer.close()
