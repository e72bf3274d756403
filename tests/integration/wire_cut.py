"""A line between a worker and its coordinator that can be cut, and held up in one direction."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self


class Line:
    """`async with Line(coordinator's address) as line`: workers connect to `line.address`."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._open, self._answers = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._answers.set()
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self.address = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._joined, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def hold(self) -> None:
        """From now on nothing of what workers send arrives."""
        self._open.clear()

    def hold_answers(self) -> None:
        """From now on nothing of what the coordinator sends arrives."""
        self._answers.clear()

    def cut(self) -> None:
        """Break what is connected; nothing is held up on what connects next."""
        for pump in self._pumps:
            pump.cancel()
        self._open, self._answers = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._answers.set()

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, self._port)
        pumps = [
            asyncio.create_task(self._pump(reader, back, self._open)),
            asyncio.create_task(self._pump(there, writer, self._answers)),
        ]
        self._pumps.update(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        back.close()
        writer.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, free: asyncio.Event
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                await free.wait()
                writer.write(data)
                await writer.drain()
