"""What a worker tells those who watch it."""

from collections.abc import Sequence
from typing import Literal, Protocol, final

from fedecado.client.work import Outcome, Work
from fedecado.v1.session_pb2 import WorkerMessage

Answer = Literal["accepted", "duplicate", "refused"]


class Observer(Protocol):
    """Called on the event loop; must neither block nor raise."""

    def connected(self, connected: bool) -> None:
        """The coordinator has welcomed this worker, or the line is gone. May be told twice."""

    def started(self, work: Work) -> None:
        """A task has arrived."""

    def finished(self, work: Work, outcome: Outcome) -> None:
        """A task has come to its end."""

    def sending(self, work: Work, message: WorkerMessage) -> None:
        """Its result goes out; a trace context may be put into the message."""

    def answered(self, task: int, answer: Answer) -> None:
        """What the coordinator said of a result."""

    def dropped(self, task: int) -> None:
        """A task is given up."""

    def close(self) -> None:
        """The process ends. Idempotent."""


@final
class Observers:
    """All of these watch; with none, nobody does."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._observers = observers

    def connected(self, connected: bool) -> None:
        for observer in self._observers:
            observer.connected(connected)

    def started(self, work: Work) -> None:
        for observer in self._observers:
            observer.started(work)

    def finished(self, work: Work, outcome: Outcome) -> None:
        for observer in self._observers:
            observer.finished(work, outcome)

    def sending(self, work: Work, message: WorkerMessage) -> None:
        for observer in self._observers:
            observer.sending(work, message)

    def answered(self, task: int, answer: Answer) -> None:
        for observer in self._observers:
            observer.answered(task, answer)

    def dropped(self, task: int) -> None:
        for observer in self._observers:
            observer.dropped(task)

    def close(self) -> None:
        for observer in self._observers:
            observer.close()
