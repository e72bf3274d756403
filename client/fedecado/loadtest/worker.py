"""One simulated worker: the real session and connection around a timer instead of training."""

import asyncio
import random
import secrets
from contextlib import suppress
from typing import assert_never, final

from fedecado.client.connection import Address, Connection
from fedecado.client.effects import Effect, Ending, Forget, HangUp, Leave, Retry, Send, Start, Stop
from fedecado.client.pace import Backoff, Pace
from fedecado.client.session import Session
from fedecado.client.work import Identity, Work
from fedecado.common.timeouts import Timeouts
from fedecado.loadtest.durations import Durations
from fedecado.loadtest.metering import Meter, MeteredAddress, RoundStarts, Tallies
from fedecado.loadtest.mischief import Spoiler
from fedecado.loadtest.plan import Plan
from fedecado.loadtest.synthetic import SyntheticTask


@final
class SimulatedWorker:
    """Connects, pretends to train and reports, until `stopping` or the end of the run."""

    def __init__(
        self, plan: Plan, number: int, task: SyntheticTask, tallies: Tallies, rounds: RoundStarts
    ) -> None:
        self._plan, self._task = plan, task
        self._rng = random.Random(f"{plan.seed}/{number}")
        self._id, self._mischief = plan.worker_id(number), plan.bad.get(number)
        self._durations = Durations.parse(plan.training)
        self._slowness = plan.straggler_factor if self._rng.random() < plan.stragglers else 1.0
        self._where = self._rng.uniform(-1.0, 1.0)
        self._samples = self._rng.randint(50, 500)
        self._timeouts = Timeouts(plan.peer_loss)
        tls = None if plan.tls is None else plan.tls.files(self._id)
        self._meter = Meter(tallies, rounds)
        address = Address(plan.target, self._timeouts, tls)
        self._line = MeteredAddress(address, self._meter, Spoiler(self._mischief))
        self._session = self._new_session()
        self._connection: Connection | None = None
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._cut = self._dead = False

    @property
    def connected(self) -> bool:
        return self._connection is not None and self._session.welcomed

    def cut(self) -> None:
        """Break the line; what is in training goes on, as in a real worker."""
        self._cut = self._line.cut()

    async def run(self, stopping: asyncio.Event) -> None:
        backoff = Backoff(self._rng)
        while not stopping.is_set():
            ending, stood = await self._visit(stopping)
            if self._judge(ending, stopping):
                break
            pause = backoff.pause(self._session.pace, stood=stood, least=getattr(ending, "after", 0.0))
            self._session.closed()
            if self._dead:
                pause += self._rng.expovariate(1.0) * self._plan.away
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await stopping.wait()
        self._drop_timers()

    async def _visit(self, stopping: asyncio.Event) -> tuple[Ending, float]:
        """One connection: how it ended, and how long it stood."""
        if self._dead:
            self._session = self._new_session()
        self._cut = self._dead = False
        self._connection = connection = Connection(self._session, self._timeouts, stopping, self._perform)
        try:
            return await connection.run(self._line), connection.stood
        finally:
            self._connection = None

    def _judge(self, ending: Ending, stopping: asyncio.Event) -> bool:
        """Count how a connection ended; whether that is the end of the worker."""
        tally, wanted = self._meter.tally, self._cut or self._dead or stopping.is_set()
        tally.counts["cuts"] += self._cut and not self._dead
        tally.counts["deaths"] += self._dead
        match ending:
            case Leave(0):
                tally.counts["finished"] += not stopping.is_set()
                return True
            case Leave(_, reason) | Retry(reason):
                refused = reason.startswith("the coordinator refused")  # counted when it was read
                if not wanted and not refused:
                    tally.error(f"disconnected: {_kind(reason)}")
                # Bad actors do not take no for an answer.
                return isinstance(ending, Leave) and self._mischief is None

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send() | HangUp():
                    if self._connection is not None:
                        self._connection.put(effect)
                case Start(work):
                    self._start(work)
                case Stop(work):
                    self._forget(work)
                case Forget():
                    pass  # nothing is kept on disk here
                case _:
                    assert_never(effect)

    def _start(self, work: Work) -> None:
        loop = asyncio.get_running_loop()
        self._meter.started(loop.time())
        if self._mischief == "silent":
            return
        seconds = self._slowness * self._durations.draw(self._rng)
        if self._rng.random() < self._plan.dropouts:
            timer = loop.call_later(seconds * self._rng.random(), self._die)
        else:
            timer = loop.call_later(seconds, self._finish, work, seconds)
        self._timers[work.header.task_id] = timer

    def _finish(self, work: Work, seconds: float) -> None:
        self._timers.pop(work.header.task_id, None)
        outcome = self._task.train(work, self._where, seconds, nan=self._mischief == "nan")
        self._perform(self._session.finished(work, outcome))

    def _die(self) -> None:
        """The process is gone with all it held; another one comes back in its place."""
        self._drop_timers()
        self._dead = True
        self._line.cut()

    def _forget(self, work: Work) -> None:
        timer = self._timers.pop(work.header.task_id, None)
        if timer is not None:
            timer.cancel()

    def _drop_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _new_session(self) -> Session:
        identity = Identity(
            worker_id=self._id,
            role="trainer",
            incarnation=secrets.randbits(63) + 1,
            software="loadtest",
            description="simulated by fedecado loadtest",
        )
        profile = self._task.profile(self._samples, wrong_model=self._mischief == "wrong-model")
        return Session(identity, profile, Pace.of(self._timeouts))


def _kind(reason: str) -> str:
    """What kind of failure it was; of gRPC's texts the status alone, for the rest tells addresses."""
    return reason.partition(": ")[0][:80]
