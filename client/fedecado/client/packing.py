"""A worker's updates in a compact format, with what rounding took from them kept for the next ones."""

from dataclasses import replace
from typing import final

import numpy as np

from fedecado.client.work import Trained, Training
from fedecado.common.feedback import Feedback
from fedecado.common.layout import Layout, Vector
from fedecado.common.names import Compact


@final
class Packer:
    """`pack` is for the thread that trains, all else for the one that talks.

    The two do not meet: a worker has one task at a time, and what became of the last one is known before the
    next is given out. Nothing is owed from one run to another.
    """

    def __init__(self, format: Compact, layout: Layout) -> None:
        self._format, self._layout = format, layout
        self._run_id = ""
        self._feedback = Feedback(format)

    def restore(self, run_id: str, owed: Vector) -> None:
        """Go on with what an earlier process of this worker still owed a run."""
        self._of(run_id).owed = owed

    def expect(self, run_id: str, task: int, missing: Vector) -> None:
        """An update that an earlier process packed is still to be delivered."""
        self._of(run_id).expect(task, missing)

    def pack(self, run_id: str, work: Training, trained: Trained) -> Trained:
        """The update as it is to be sent; NonFiniteError if the format cannot hold it."""
        packed = self._of(run_id).pack(work.header.task_id, self._layout, work.state, trained.state)
        return replace(trained, state=np.empty(0, trained.state.dtype), packed=packed)

    def settle(self, task: int, *, counted: bool) -> None:
        """A task is over; `counted` if the coordinator has its update."""
        self._feedback.settle(task, counted=counted)

    def _of(self, run_id: str) -> Feedback:
        if run_id != self._run_id:
            self._run_id, self._feedback = run_id, Feedback(self._format)
        return self._feedback
