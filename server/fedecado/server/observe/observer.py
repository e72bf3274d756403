"""What a run tells those who watch it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, final

if TYPE_CHECKING:
    from fedecado.server.coordinator.journal import ClosedRound

Outcome = Literal["accepted", "duplicate", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class Window:
    """One update's place in its round."""

    worker: str
    time: float
    """T_i."""
    behind: int
    """How many versions before the newest one it started."""


class Observer(Protocol):
    """Called on the event loop, after the fact; must neither block nor raise."""

    def updated(self, outcome: Outcome, reason: str = "") -> None:
        """What became of an update; `reason` is one of the protocol's, in lower case."""

    def closed(self, closed: "ClosedRound", windows: tuple[Window, ...]) -> None:
        """A round is aggregated."""

    def discarded(self) -> None:
        """A round could not be aggregated."""

    def saved(self, seconds: float, *, failed: bool) -> None:
        """A model was written to disk, or could not be."""


@final
class NoObserver:
    """Nobody watches."""

    def updated(self, outcome: Outcome, reason: str = "") -> None: ...
    def closed(self, closed: "ClosedRound", windows: tuple[Window, ...]) -> None: ...
    def discarded(self) -> None: ...
    def saved(self, seconds: float, *, failed: bool) -> None: ...
