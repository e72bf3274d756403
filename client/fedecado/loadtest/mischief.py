"""What bad actors do to the messages they send."""

import asyncio
from typing import final

from fedecado.loadtest.plan import Mischief
from fedecado.v1.session_pb2 import Update, WorkerMessage

_GARBAGE = b"\xff" * 16
"""No protobuf: an unfinished tag."""
UPDATE = WorkerMessage(update=Update()).SerializeToString()[:1]
"""How a message begins that encloses an update's vector, which a worker writes as bytes."""


@final
class Spoiler:
    """Changes messages on their way out; honest workers have one that does nothing."""

    def __init__(self, mischief: Mischief | None) -> None:
        self._mischief = mischief
        self._damaged = 0
        self._task = 0

    async def spoil(self, message: WorkerMessage | bytes) -> WorkerMessage | bytes:
        """The message to send instead; waits as long as it is let where an upload is to hang."""
        if self._mischief is None:
            return message
        if isinstance(message, bytes) and message[:1] == UPDATE:
            message = WorkerMessage.FromString(message)  # one that encloses its vector
        if isinstance(message, WorkerMessage):
            if message.WhichOneof("content") == "update":
                return self._spoil_update(message)
        elif self._task:
            return await self._spoil_chunk(message)
        return message

    def _spoil_update(self, message: WorkerMessage) -> WorkerMessage | bytes:
        update = message.update
        self._task = update.task_id
        if self._mischief == "garbage":
            return _GARBAGE
        if update.HasField("state"):
            if self._mischief == "stalling":
                update.ClearField("state")  # what is announced never comes
            if self._mischief == "damaged" and self._damaged != self._task:
                self._damaged = self._task
                update.state.crc32 ^= 1
        return message

    async def _spoil_chunk(self, chunk: bytes) -> bytes:
        if self._mischief == "stalling":
            await asyncio.Event().wait()  # the connection's own limit ends this
        if self._mischief == "damaged" and self._damaged != self._task:
            # Once per task: a damaged update is sent again, and may then pass.
            self._damaged = self._task
            return chunk[:-4] + bytes(4)
        return chunk
