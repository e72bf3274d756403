"""What waits to be sent to one worker."""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import final

from google.protobuf.message import Message

Parcel = Iterable[Message | bytes]


@final
class Outbox:
    """A queue without bounds for one reader; `asyncio.Queue`, which is for many, takes twice as long."""

    def __init__(self) -> None:
        self._parcels: deque[Parcel | None] = deque()
        self._reader: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._parcels)

    def put(self, parcel: Parcel | None) -> None:
        """Add a parcel; none is the end."""
        self._parcels.append(parcel)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def get(self) -> Parcel | None:
        """The oldest parcel, as soon as there is one."""
        if not self._parcels:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self._parcels.popleft()
