"""Simulated clients' updates in the format that they would travel in, with the same rounding and feedback."""

from dataclasses import replace
from typing import final

import numpy as np

from fedecado.common.feedback import Feedback
from fedecado.common.formats import decode
from fedecado.common.layout import Layout, Vector
from fedecado.common.names import Compact, Format
from fedecado.server.federation import Result


@final
class Uplink:
    """The way from all clients to the centre; updates in full precision pass as they are."""

    def __init__(self, format: Format, layout: Layout, *, feedback: bool = True) -> None:
        self._format: Compact | None = None if format == "full" else format
        self._layout, self._keep = layout, feedback
        self._accounts: dict[str, Feedback] = {}

    def carry(self, client: str, task: int, start: Vector, result: Result) -> tuple[Result, int]:
        """The result as it arrives, and how many bytes travelled; NonFiniteError if it cannot be written."""
        if self._format is None:
            return result, result.state.nbytes
        account = self._accounts.setdefault(client, Feedback(self._format, keep=self._keep))
        packed = account.pack(task, self._layout, start, result.state)
        arrived = decode(packed, self._layout, start)
        return replace(result, state=arrived, square=np.nan), packed.payload.nbytes

    def settle(self, client: str, task: int, *, counted: bool) -> None:
        """A task is over; `counted` if its update was accepted."""
        if client in self._accounts:
            self._accounts[client].settle(task, counted=counted)
