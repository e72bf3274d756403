"""What a worker still has of its last task, so that its next drift need not be sent.

A drift is as long as the model. For a worker that was in the last round, if that took one step, the next one
follows from what it has: the drift that it had, where it began and ended, and the new centre. So it is told
three numbers. It rounds otherwise than the coordinator, in the last bit, and that adds up; so the drift is
sent in full again from time to time.
"""

from dataclasses import dataclass
from typing import Final, final

from fedecado.server.federation import Follows
from fedecado.v1 import session_pb2 as pb

IN_FULL_EVERY: Final = 32
"""Of so many drifts in a row one is sent."""


@dataclass(frozen=True, slots=True)
class _Given:
    task: int
    divisor: float
    """What made its drift of what is kept of the client."""
    row: int
    """How many in a row were not sent."""


@final
class Footing:
    """Of one session: what a worker has after it has reconnected is not known."""

    def __init__(self) -> None:
        self._given: _Given | None = None
        self._there: _Given | None = None

    def change(self, follows: Follows | None, divisor: float) -> pb.DriftChange | None:
        """How the worker gets from its last task to its next drift; None if that has to be sent."""
        there = self._there
        if there is None or follows is None or there.task != follows.task or there.row >= IN_FULL_EVERY - 1:
            return None
        return pb.DriftChange(
            task_id=there.task,
            keep=there.divisor / divisor,
            toward=follows.moved.toward / divisor,
            along=follows.moved.along / divisor,
        )

    def gave(self, task: int, divisor: float, *, sent: bool) -> None:
        """The worker is given a task with a drift, and for that forgets the last one."""
        row = 0 if sent or self._there is None else self._there.row + 1
        self._given, self._there = _Given(task, divisor, row), None

    def counted(self, task: int) -> None:
        """A task's update counts, and the worker is going to know."""
        if self._given is not None and self._given.task == task:
            self._there = self._given
