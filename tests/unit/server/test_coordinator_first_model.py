"""Who is asked for the model to start from, and what becomes of the answers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from fedecado.common.errors import NonFiniteError
from fedecado.common.layout import Layout, Vector
from fedecado.server.coordinator.beside import Beside
from fedecado.server.coordinator.first_model import Begun, FirstModel
from fedecado.server.coordinator.members import Member, Members
from fedecado.v1 import session_pb2 as pb

LAYOUT = Layout.flat(3)
STATE: Vector = np.ones(3, np.float32)


class Ears:
    """A session that keeps what it is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.news = asyncio.Event()

    def send(self, content: Any) -> None:
        self.sent.append(content)
        self.news.set()

    @property
    def asked(self) -> int:
        return sum(isinstance(message, pb.RequestInitialState) for message in self.sent)


class Stage:
    """Two connected workers and the search for a first model."""

    def __init__(self, patience: float) -> None:
        self.begun: list[Begun] = []
        self.failure: BaseException | None = None
        self.answers: list[Any] = []
        self.beside = Beside(lambda error: setattr(self, "failure", error))
        self.members = Members()
        self.ears = [Ears(), Ears()]
        for number, ears in enumerate(self.ears):
            hello = pb.Hello(worker_id=f"w{number}", role=pb.ROLE_TRAINER, samples=5)
            session: Any = ears
            self.members.admit(hello, session, "here")
        self.first = FirstModel(self._make, self.begun.append, self.members, self.beside, patience)

    def member(self, number: int) -> Member:
        return self.members.by_id[f"w{number}"]

    def _make(self, layout: Layout, state: Vector) -> Any:
        if not np.isfinite(state).all():
            raise NonFiniteError("number 0 is nan")
        return layout, state


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage(patience=3600)
    yield made
    await made.beside.settle()
    made.beside.close()
    assert made.failure is None


async def test_one_worker_is_asked_and_its_model_begins_the_run_once(stage: Stage) -> None:
    stage.first.ask()
    stage.first.ask()
    assert [ears.asked for ears in stage.ears] == [1, 0]
    assert stage.first.waiting_for == "w0"
    stage.first.received(stage.member(0), LAYOUT, STATE)
    stage.first.received(stage.member(1), LAYOUT, STATE)
    await stage.beside.settle()
    assert len(stage.begun) == 1
    outcomes = [ears.sent[-1].outcome for ears in stage.ears]
    assert outcomes == [pb.Acknowledge.OUTCOME_ACCEPTED, pb.Acknowledge.OUTCOME_DUPLICATE]


async def test_another_is_asked_when_the_first_goes_or_sends_nonsense(stage: Stage) -> None:
    stage.first.ask()
    stage.first.received(stage.member(0), LAYOUT, np.full(3, np.nan, np.float32))
    await stage.beside.settle()
    assert [ears.asked for ears in stage.ears] == [1, 1]
    assert stage.ears[0].sent[-1].outcome == pb.Acknowledge.OUTCOME_REFUSED
    assert "nan" in stage.ears[0].sent[-1].message
    stage.member(1).session = None
    stage.first.left(stage.member(1))
    assert stage.ears[0].asked == 2
    assert not stage.begun


async def test_another_is_asked_too_when_the_first_takes_too_long() -> None:
    stage = Stage(patience=0.01)
    stage.first.ask()
    await asyncio.wait_for(stage.ears[1].news.wait(), 10)
    assert stage.ears[1].asked == 1
    stage.first.received(stage.member(0), LAYOUT, STATE)  # the slow one may still be the one
    await stage.beside.settle()
    assert len(stage.begun) == 1
    stage.beside.close()
