"""The open tasks, the updates that count, and the versions that either still needs."""

from dataclasses import dataclass
from typing import Literal

Phase = Literal["running", "away", "overdue", "ready"]


@dataclass(slots=True)
class Task:
    """A piece of work handed to a client."""

    client: str
    version: int
    round: int
    weight: float
    """w_i as it was when the task was handed out."""
    phase: Phase = "running"


class Ledger:
    """Tasks by number; what is derived from them is kept at hand so that no event scans them all."""

    def __init__(self, version: int = 0, next_number: int = 1) -> None:
        self.version = version
        self.next_number = next_number
        """Numbers start at 1: on the wire, 0 stands for the initial state."""
        self.tasks: dict[int, Task] = {}
        self.running: set[int] = set()
        self.ready: dict[int, None] = {}
        """Tasks whose updates the open round holds, by arrival: a set with an order."""
        self.closing: tuple[int, ...] = ()
        """Tasks of the round being aggregated."""
        self.unused: list[int] = []
        """Versions that nothing needs any more."""
        self._users = {version: 1}

    def number(self) -> int:
        """A number that was never given out."""
        number, self.next_number = self.next_number, self.next_number + 1
        return number

    def put(self, number: int, task: Task) -> None:
        self.tasks[number] = task
        self._users[task.version] = self._users.get(task.version, 0) + 1
        self.move(number, task.phase)

    def move(self, number: int, phase: Phase) -> None:
        self.tasks[number].phase = phase
        if phase == "running":
            self.running.add(number)
        else:
            self.running.discard(number)
        if phase == "ready":
            self.ready[number] = None

    def forget(self, number: int) -> None:
        self.running.discard(number)
        self.ready.pop(number, None)
        self._unuse(self.tasks.pop(number).version)

    def close(self) -> tuple[int, ...]:
        """Take the updates of the open round to be aggregated."""
        self.closing, self.ready = tuple(self.ready), {}
        return self.closing

    def forget_closed(self) -> None:
        for number in self.closing:
            self.forget(number)
        self.closing = ()

    def publish(self) -> None:
        """Go on to the next version; the newest one always has a user."""
        self.version += 1
        self._users[self.version] = 1
        self._unuse(self.version - 1)

    def take_unused(self) -> list[int]:
        unused, self.unused = self.unused, []
        return unused

    def _unuse(self, version: int) -> None:
        left = self._users.pop(version) - 1
        if left:
            self._users[version] = left
        else:
            self.unused.append(version)
