"""Handing tasks out to workers, and taking them back."""

import time
from typing import final

from fedecado.common.errors import RoundError
from fedecado.common.layout import Vector
from fedecado.server.coordinator.beside import Beside
from fedecado.server.coordinator.facts import Facts
from fedecado.server.coordinator.members import Member
from fedecado.server.coordinator.post import Suggestions, Version, assignment
from fedecado.server.coordinator.session import Session
from fedecado.server.federation import Federation, Offer
from fedecado.server.rounds import Assign
from fedecado.v1 import session_pb2 as pb


@final
class Handout:
    """Sends workers who are there what the engine has for them."""

    def __init__(self, run: Facts, beside: Beside) -> None:
        self.suggestions = Suggestions()
        self._run, self._beside = run, beside
        self._version: Version | None = None

    def assign(self, effect: Assign) -> None:
        """Hand a task out: at once if its vectors are short, so that it costs no task of the event loop."""
        member, federation = self._run.members.by_id[effect.client], self._run.federation
        session = member.session
        if session is None or federation is None or effect.task not in self._run.engine.tasks:
            return
        if self._run.is_light(1):
            self._post(effect, member, session, federation.offer(effect.task))
        else:
            self._beside.spawn(self._assign_long(effect, member, session, federation))

    def cancel(self, client: str, task: int, reason: str) -> None:
        """Tell a worker that a task is no longer wanted."""
        if (session := self._run.members.by_id[client].session) is not None:
            session.send(pb.Cancel(task_id=task, reason=reason))

    async def _assign_long(
        self, effect: Assign, member: Member, session: Session, federation: Federation
    ) -> None:
        try:
            offer = await self._beside.numerics(federation.offer, effect.task)
        except RoundError:
            return  # cancelled before its turn came; the engine knows
        if effect.task in self._run.engine.tasks and member.session is session:  # else the engine knows
            self._post(effect, member, session, offer)

    def _post(self, effect: Assign, member: Member, session: Session, offer: Offer) -> None:
        trace = self._run.traces.assigned(effect.task, effect.round, member.id)
        version = self._encoded(offer.version, offer.state)
        parcel, size = assignment(offer, effect.round, version, self.suggestions, member, trace)
        session.send_parcel(parcel)
        self._run.journal.bytes_sent += size
        member.task_since, member.progress = time.time(), None

    def _encoded(self, number: int, state: Vector) -> Version:
        """A version as it goes out, made once for all workers."""
        if self._version is None or self._version.number != number:
            self._version = Version(number, state)
        return self._version
