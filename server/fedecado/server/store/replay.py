"""The rules by which events move an engine and its federation together.

Whoever drives a run keeps to them, or a replay of its journal ends elsewhere:

* An accepted update is kept before anything else is done for its event.
* A client that left or was banned is forgotten right after the engine heard of it, before a round closes
  without it.
* A closed round is aggregated and committed with the n of its `CloseRound`, before a later event touches
  the federation. The engine hears of it with the event in `Driver.closed`, at any later time.
"""

from typing import Final, final

from fedecado.common.errors import NumericsError, RoundError, StoreError
from fedecado.common.records import record
from fedecado.server.algorithms import Report
from fedecado.server.federation import Federation, Result
from fedecado.server.rounds import (
    Accept,
    Aggregated,
    Banned,
    CloseRound,
    Discarded,
    DropVersion,
    Effect,
    Event,
    Left,
)

_ENDINGS: Final = Aggregated, Discarded


@record
class Closed:
    """A round that was aggregated, or given up, and of which the engine has not heard yet."""

    round: int
    version: int
    """The newest one then."""
    tasks: tuple[int, ...]
    enrolled: int
    """n when it closed."""
    delivered: tuple[tuple[str, Result], ...]
    """Its clients and their results."""
    report: Report | None
    """None when it could not be aggregated."""
    reason: str = ""

    @property
    def event(self) -> Aggregated | Discarded:
        """What to tell the engine."""
        return Discarded() if self.report is None else Aggregated(self.report.rate)


def counts(effects: list[Effect]) -> bool:
    """Whether an update counts now, and so must be stored with its event."""
    return any(isinstance(effect, Accept) and not effect.duplicate for effect in effects)


def close(federation: Federation, effect: CloseRound) -> Closed:
    """Aggregate and commit a round, or give it up; touches no engine."""
    delivered, enrolled = tuple(federation.results(effect.tasks)), federation.engine.enrolled
    report, reason = None, ""
    try:
        federation.aggregate(effect.tasks)
        report = federation.commit(effect.tasks)
    except NumericsError as error:
        federation.discard(effect.tasks)
        reason = str(error)
    return Closed(effect.round, federation.version, effect.tasks, enrolled, delivered, report, reason)


@final
class Driver:
    """Drives a run in one thread; a replay, a test or a simulator needs nothing else."""

    def __init__(self, federation: Federation) -> None:
        self.federation, self.engine = federation, federation.engine
        self.closed: Closed | None = None
        """Set between a round's close and the event that tells the engine."""
        self.rounds: list[Closed] = []
        """Every round closed here."""

    def handle(self, event: Event, result: Result | None = None) -> list[Effect]:
        """Tell the engine and move the vectors; the effects, of which messages and timers are left to do."""
        if isinstance(event, _ENDINGS) and self.closed is None:
            raise RoundError("no round is being aggregated; report this once after each CloseRound")
        effects = self.engine.handle(event)
        if isinstance(event, _ENDINGS):
            self.closed = None
        if isinstance(event, Left | Banned):
            self.federation.forget(event.client)
        for effect in effects:
            self._carry_out(effect, result)
        return effects

    def _carry_out(self, effect: Effect, result: Result | None) -> None:
        match effect:
            case Accept(task, client, duplicate=False):
                if result is None:
                    raise StoreError(f"the update of {client!r} for task {task} counts but is not there")
                self.federation.accept(task, result)
            case CloseRound():
                self.closed = close(self.federation, effect)
                self.rounds.append(self.closed)
            case DropVersion(version):
                self.federation.drop(version)
            case _:
                pass  # for the network and the clock
