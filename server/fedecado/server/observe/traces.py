"""What a run tells those who trace single tasks; see `otel` for who does."""

from typing import Protocol, final

from fedecado.server.observe.observer import Outcome


class Traces(Protocol):
    """Called on the event loop; must neither block nor raise."""

    def assigned(self, task: int, number: int, worker: str) -> str:
        """A task is sent in round `number`; the trace context to send along, empty for none."""

    def arrived(self, task: int, worker: str, traceparent: str) -> None:
        """An update is complete; `traceparent` is what came with it."""

    def answered(self, task: int, outcome: Outcome) -> None:
        """An update was taken or not."""

    def aggregating(self, number: int, tasks: tuple[int, ...]) -> None:
        """The round's updates are being combined."""

    def aggregated(self, number: int, *, failed: bool = False) -> None:
        """They are, or cannot be."""


@final
class NoTraces:
    """Nobody traces."""

    def assigned(self, task: int, number: int, worker: str) -> str:
        return ""

    def arrived(self, task: int, worker: str, traceparent: str) -> None: ...
    def answered(self, task: int, outcome: Outcome) -> None: ...
    def aggregating(self, number: int, tasks: tuple[int, ...]) -> None: ...
    def aggregated(self, number: int, *, failed: bool = False) -> None: ...
