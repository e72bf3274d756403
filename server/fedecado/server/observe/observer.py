"""What a run tells those who watch it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol, final

from fedecado.common.records import record

if TYPE_CHECKING:
    from fedecado.server.coordinator.journal import ClosedRound, Measurement
    from fedecado.server.store import Flush

Outcome = Literal["accepted", "duplicate", "refused", "failed"]


@record
class Window:
    """One update's place in its round."""

    worker: str
    time: float
    """T_i."""
    behind: int
    """How many versions before the newest one it started."""
    flow: float | None = None
    """RMS of the client's new flow I_i; none for algorithms without flows."""


class Observer(Protocol):
    """Called on the event loop, after the fact; must neither block nor raise."""

    def updated(self, outcome: Outcome, reason: str = "") -> None:
        """What became of an update; `reason` is one of the protocol's, in lower case."""

    def refused(self, reason: str) -> None:
        """A session was refused, or ended for what it sent; `reason` is one of `SESSION_REASONS`."""

    def closed(self, closed: "ClosedRound", windows: tuple[Window, ...]) -> None:
        """A round is aggregated."""

    def discarded(self) -> None:
        """A round could not be aggregated."""

    def measured(self, measurement: "Measurement") -> None:
        """A version is evaluated."""

    def saved(self, seconds: float, *, failed: bool) -> None:
        """A model was written to disk, or could not be."""

    def flushed(self, what: "Flush", seconds: float) -> None:
        """The store waited for the disk. Called from any thread."""


@final
class NoObserver:
    """Nobody watches."""

    def updated(self, outcome: Outcome, reason: str = "") -> None: ...
    def refused(self, reason: str) -> None: ...
    def closed(self, closed: "ClosedRound", windows: tuple[Window, ...]) -> None: ...
    def discarded(self) -> None: ...
    def measured(self, measurement: "Measurement") -> None: ...
    def saved(self, seconds: float, *, failed: bool) -> None: ...
    def flushed(self, what: "Flush", seconds: float) -> None: ...


@final
class Several:
    """All of these watch."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def updated(self, outcome: Outcome, reason: str = "") -> None:
        for observer in self._observers:
            observer.updated(outcome, reason)

    def refused(self, reason: str) -> None:
        for observer in self._observers:
            observer.refused(reason)

    def closed(self, closed: "ClosedRound", windows: tuple[Window, ...]) -> None:
        for observer in self._observers:
            observer.closed(closed, windows)

    def discarded(self) -> None:
        for observer in self._observers:
            observer.discarded()

    def measured(self, measurement: "Measurement") -> None:
        for observer in self._observers:
            observer.measured(measurement)

    def saved(self, seconds: float, *, failed: bool) -> None:
        for observer in self._observers:
            observer.saved(seconds, failed=failed)

    def flushed(self, what: "Flush", seconds: float) -> None:
        for observer in self._observers:
            observer.flushed(what, seconds)
