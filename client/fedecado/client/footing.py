"""What is left of the last task that counted: the next drift may be made of it, instead of being sent."""

import math
from functools import partial
from typing import Final, final

import numpy as np

from fedecado.client.work import MakeDrift, Trained, Training
from fedecado.common.errors import ProtocolError
from fedecado.common.formats import decode
from fedecado.common.layout import Layout, Vector
from fedecado.v1.session_pb2 import DriftChange

PIECE: Final = 1 << 15
"""Numbers that are worked on at a time, so that what lies between stays in cache."""


@final
class Footing:
    """A task's drift, and where it began and ended; used once, the next drift takes its memory."""

    def __init__(self, work: Training, trained: Trained, layout: Layout) -> None:
        self.task = work.header.task_id
        self._layout = layout
        self._left: tuple[Training, Trained] | None = work, trained

    def follow(self, change: DriftChange) -> MakeDrift:
        """What makes the next drift of the new central state; ProtocolError if it cannot."""
        if change.task_id != self.task:
            raise ProtocolError(f"the drift follows from task {change.task_id}, what is here is {self.task}")
        if not all(map(math.isfinite, (change.keep, change.toward, change.along))):
            raise ProtocolError("the drift follows by factors that are not finite")
        return partial(self._make, change)

    def _make(self, change: DriftChange, central: Vector) -> Vector:
        """b = keep b' + toward (x_c - x_start') - along (x_end' - x_start')"""
        assert self._left is not None  # noqa: S101 - a task makes its drift once
        (work, trained), self._left = self._left, None
        start, b = work.state, work.drift
        assert b is not None  # noqa: S101 - only what had a drift leaves a footing
        scalar = b.dtype.type
        # In a compact format the coordinator knows of the end what it was sent.
        end = trained.state if trained.packed is None else decode(trained.packed, self._layout, start)
        keep, toward, along = scalar(change.keep), scalar(change.toward), scalar(change.along)
        room = np.empty(min(len(b), PIECE), b.dtype)
        for at in range(0, len(b), PIECE):
            part = slice(at, min(at + PIECE, len(b)))
            own, by = b[part], room[: part.stop - at]
            own *= keep
            for factor, vector in ((toward, central), (-along, end)):
                np.subtract(vector[part], start[part], out=by)
                by *= factor
                own += by
        return b
