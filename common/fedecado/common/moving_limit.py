"""A time limit that moves on with every message."""

import asyncio
import math
from types import TracebackType
from typing import Self, final


@final
class MovingLimit:
    """`async with MovingLimit() as limit`: TimeoutError once the moment last given to `move` has passed.

    To move it is to note the moment: a timer that is made and cancelled for every message costs as much as
    reading one. The timer learns of it when it fires, and is set anew for the rest.
    """

    __slots__ = ("_fires", "_loop", "_timeout", "_timer", "_until")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None
        self._until = self._fires = math.inf

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._until = math.inf
        if self._timer is not None:
            self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def move(self, until: float) -> None:
        """Wait until this moment of the event loop's clock; infinity sets no limit."""
        self._until = until
        if until < self._fires:
            self._set()

    def _set(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fires = self._until
        self._timer = self._loop.call_at(self._until, self._fired)

    def _fired(self) -> None:
        self._timer, self._fires = None, math.inf
        now = self._loop.time()
        if self._until <= now:
            self._timeout.reschedule(now)
        elif self._until < math.inf:
            self._set()
