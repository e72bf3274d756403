"""Finding the model to start from: one worker is asked for its own, then another if it fails."""

import logging
from collections.abc import Callable
from typing import final

from fedecado.common.errors import NumericsError
from fedecado.common.layout import Layout, Vector
from fedecado.common.logs import about
from fedecado.server.coordinator.beside import Beside
from fedecado.server.coordinator.members import Member, Members
from fedecado.server.coordinator.post import acknowledge
from fedecado.server.federation import Federation
from fedecado.server.store import Store
from fedecado.v1 import session_pb2 as pb

log = logging.getLogger(__name__)

Begun = tuple[Federation, Store | None]
Begin = Callable[[Layout, Vector], Begun]
"""Makes a federation from the model to start with, and the store that keeps it."""


@final
class FirstModel:
    """Asks until a model is there; `begun` is called with what came of it, once."""

    def __init__(
        self,
        make: Begin,
        begun: Callable[[Begun], None],
        members: Members,
        beside: Beside,
        patience: float,
    ) -> None:
        self._make, self._begun, self._members, self._beside = make, begun, members, beside
        self._patience = patience
        self._asked: Member | None = None
        self._ever: set[str] = set()
        self._taking = False
        self._done = False

    @property
    def waiting_for(self) -> str:
        """Who is to send it, in words."""
        return "a first worker" if self._asked is None else self._asked.id

    async def start(self, layout: Layout, state: Vector) -> None:
        """Begin with a model that is at hand."""
        self._start(await self._beside.files(self._make, layout, state))

    def _start(self, begun: Begun) -> None:
        self._done = True
        self._begun(begun)

    def spare(self) -> None:
        """A stored run goes on: nobody is asked."""
        self._done = True

    def ask(self, besides: Member | None = None) -> None:
        """Have one trainer send its model, unless one has been asked."""
        trainers = [member for member in self._members.connected(trains=True) if member is not besides]
        if self._done or self._asked is not None or not trainers:
            return
        self._asked = asked = trainers[0]
        self._ever.add(asked.id)
        if asked.session is not None:
            asked.session.send(pb.RequestInitialState())
        self._beside.after(self._patience, lambda: self._give_up(asked))

    @property
    def begun(self) -> bool:
        """Whether a model is here, or being taken."""
        return self._done or self._taking

    def wants(self, member: Member) -> bool:
        """Whether a model of this worker's would be taken: it was asked, and none is here."""
        return not self.begun and member.id in self._ever

    def left(self, member: Member) -> None:
        """A worker went away; if it was the one asked, another is."""
        if self._asked is member:
            self._asked = None
            self.ask()

    def received(self, member: Member, layout: Layout, state: Vector) -> None:
        """A worker's model is here; only the first one is taken."""
        if self.begun:
            acknowledge(member, 0, pb.Acknowledge.OUTCOME_DUPLICATE)
            return
        self._taking = True
        # Not in the worker's session: that may end at any moment, and a run is begun once.
        self._beside.spawn(self._take(member, layout, state))

    async def _take(self, member: Member, layout: Layout, state: Vector) -> None:
        try:
            begun = await self._beside.files(self._make, layout, state)
        except NumericsError as error:
            text = f"the initial state cannot be used: {error}"
            member.blame(type(error).__name__, text)
            outcome, reason = pb.Acknowledge.OUTCOME_REFUSED, pb.Acknowledge.REASON_NON_FINITE
            acknowledge(member, 0, outcome, reason, text)
            self._asked = None
            self.ask(besides=member)
        else:
            acknowledge(member, 0, pb.Acknowledge.OUTCOME_ACCEPTED)  # before its first task
            self._start(begun)
        finally:
            self._taking = False

    def _give_up(self, asked: Member) -> None:
        if not self._done and self._asked is asked and len(self._members.connected(trains=True)) > 1:
            words = "%s has not sent its model; asking another worker"
            log.warning(words, asked.id, extra=about(worker=asked.id))
            self._asked = None
            self.ask(besides=asked)
