"""The worker process: make the task, then connect, work and reconnect until it is told to end."""

import asyncio
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, assert_never, final

import uvloop

from fedecado.client.background import Background
from fedecado.client.connection import Address, Connection
from fedecado.client.effects import Effect, Forget, HangUp, Leave, Send, Start, Stop
from fedecado.client.pace import Backoff, Pace
from fedecado.client.packing import Packer
from fedecado.client.session import Session
from fedecado.client.spool import Spool
from fedecado.client.surroundings import Surroundings
from fedecado.client.work import Failed, Identity, Learner, Outcome, Trained, Training, Work
from fedecado.common.health_port import HealthPort
from fedecado.common.layout import Layout

logger = logging.getLogger(__name__)

ALONE = Surroundings()
Keep = Callable[[Layout, Training, Trained], bool]
Pack = Callable[[Training, Trained], Trained]


@final
class Worker:
    """Joins the session, the line and the thread that trains. Lives on the event loop."""

    def __init__(
        self,
        address: Address,
        identity: Identity,
        learner: Learner,
        background: Background,
        around: Surroundings = ALONE,
    ) -> None:
        self._address, self._learner, self._background = address, learner, background
        layout, upload, makes = learner.profile.layout, around.upload, around.makes_drifts
        pace = Pace.of(address.timeouts)
        self._session = Session(identity, learner.profile, pace, around.observer, upload, makes_drifts=makes)
        self._spool = spool = around.spool
        self._packer = None if upload == "full" else Packer(upload, layout)
        self._connection: Connection | None = None
        if spool is not None:
            self._recover(spool, layout)

    def _recover(self, spool: Spool, layout: Layout) -> None:
        """Go on where an earlier process of this worker stood."""
        if self._packer is not None and (owed := spool.owed(layout)) is not None:
            self._packer.restore(*owed)
        if (left := spool.load(layout)) is not None:
            self._session.restore(left.run_id, left.work, left.outcome)
            if self._packer is not None and left.outcome.packed is not None:
                task = left.work.header.task_id
                self._packer.expect(left.run_id, task, left.outcome.packed.missing)

    def welcomed(self) -> bool:
        """Whether a coordinator knows this worker and can give it work."""
        return self._session.welcomed

    async def run(self, stopping: asyncio.Event) -> Leave:
        """Connect again and again, until the coordinator or the operator ends it."""
        backoff = Backoff(random.Random())
        logger.info("connecting to %s", self._address.target)
        while not stopping.is_set():
            self._connection = Connection(self._session, self._address.timeouts, stopping, self.perform)
            ending = await self._connection.run(self._address)
            stood, self._connection = self._connection.stood, None
            if isinstance(ending, Leave):
                return ending
            pause = backoff.pause(self._session.pace, stood=stood, least=ending.after)
            self._session.closed()
            what = "disconnected" if stood else "not connected"
            logger.warning("%s: %s; next try in %.2f s", what, ending.reason, pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await stopping.wait()
        return Leave(0, "stopped")

    def abandon(self) -> None:
        """Give up what is in training."""
        self.perform(self._session.stop())

    def perform(self, effects: list[Effect]) -> None:
        """Do what the session asks for."""
        for effect in effects:
            match effect:
                case Send() | HangUp():
                    if self._connection is not None:
                        self._connection.put(effect)
                case Start(work):
                    self._start(work)
                case Stop(work):
                    work.stop()
                case Forget(task, counted):
                    if self._spool is not None:
                        self._spool.forget(task, counted=counted)
                    if self._packer is not None:
                        self._packer.settle(task, counted=counted)
                case _:
                    assert_never(effect)

    def _start(self, work: Work) -> None:
        report = _Meter(self._session.pace.progress, partial(self._background.call, self._progressed, work))
        run_id, packer = self._session.run_id, self._packer
        pack = None if packer is None or self._session.upload == "full" else partial(packer.pack, run_id)
        keep = None if self._spool is None else partial(self._spool.keep, run_id)
        future = self._background.submit(partial(_attempt, self._learner, work, report, pack, keep))
        future.add_done_callback(partial(self._finished, work))

    def _finished(self, work: Work, future: asyncio.Future[tuple[Outcome, bool] | None]) -> None:
        if future.cancelled():
            return
        ended = future.result()
        if ended is not None:
            outcome, kept = ended
            self.perform(self._session.finished(work, outcome, kept=kept))

    def _progressed(self, work: Work, done: int, total: int, loss: float | None) -> None:
        self.perform(self._session.progressed(work, done, total, loss))


@final
class _Meter:
    """Passes progress on, but not more often than every so many seconds."""

    def __init__(self, interval: float, report: Callable[[int, int, float | None], None]) -> None:
        self._interval, self._report = interval, report
        self._last = time.monotonic()

    def __call__(self, done: int, total: int, loss: float | None) -> None:
        now = time.monotonic()
        if now - self._last >= self._interval:
            self._last = now
            self._report(done, total, loss)


def _attempt(
    learner: Learner, work: Work, report: _Meter, pack: Pack | None, keep: Keep | None
) -> tuple[Outcome, bool] | None:
    """In the thread: an outcome, whatever user code does, and whether it is on disk.

    None once nobody wants it.
    """
    if work.stopped():
        return None
    try:
        outcome = learner.run(work, report)
        if pack is not None and isinstance(work, Training) and isinstance(outcome, Trained):
            outcome = pack(work, outcome)
    except BaseException as error:  # sys.exit() in a loss function is a failed task, too
        return None if work.stopped() else (Failed.of(error), False)
    if keep is None or not isinstance(work, Training) or not isinstance(outcome, Trained):
        return outcome, False
    return outcome, keep(learner.profile.layout, work, outcome)


async def serve(
    address: Address,
    identity: Identity,
    make: Callable[[], Learner],
    background: Background,
    stopping: asyncio.Event,
    around: Surroundings = ALONE,
) -> Leave:
    """Be a worker until `stopping` or the end of the run; `make` is called in the training thread.

    What `make` raises passes through. Afterwards `background.ended` is false if user code runs on.
    """
    ending, worker = Leave(0, "stopped"), None
    async with HealthPort(around.health_bind) as health:
        try:
            logger.info("making the task")
            making = background.submit(make)
            await _either(stopping, making)
            if making.done():
                worker = Worker(address, identity, making.result(), background, around)
                health.ready = worker.welcomed
                ending = await worker.run(stopping)
        finally:
            if worker is not None:
                worker.abandon()
            # A training step ends soon, a task half made nobody knows when.
            await background.close(address.timeouts.drain / 2 if worker else 0.0)
    return ending


def run_process(
    address: Address, identity: Identity, make: Callable[[], Learner], around: Surroundings = ALONE
) -> int:
    """Be a worker; the first SIGTERM or SIGINT ends it in good order, the second at once."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            ending, ended = runner.run(_main(address, identity, make, around))
    finally:
        if around.observer is not None:
            around.observer.close()
    logger.log(logging.ERROR if ending.code else logging.INFO, "%s", ending.reason)
    if not ended:
        # The interpreter cannot take a thread out of torch's code, and may crash when it tries.
        logging.shutdown()
        os._exit(ending.code)
    return ending.code


async def _main(
    address: Address, identity: Identity, make: Callable[[], Learner], around: Surroundings
) -> tuple[Leave, bool]:
    stopping, background = asyncio.Event(), Background()
    with signals(stopping):
        async with asyncio.TaskGroup() as group:
            renewing = None
            if around.credential is not None:
                from fedecado.client.renewal import keep_fresh

                renewing = group.create_task(keep_fresh(around.credential, address.target, address.timeouts))
            ending = await serve(address, identity, make, background, stopping, around)
            if renewing is not None:
                renewing.cancel()
    return ending, background.ended


@contextmanager
def signals(stopping: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def stop() -> None:
        for number in signals:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        stopping.set()
        logger.info("stopping; a second signal ends this at once")

    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


async def _either(stopping: asyncio.Event, future: asyncio.Future[Any]) -> None:
    """Wait for one of the two, without a limit: a task's data may take hours to arrive."""
    async with asyncio.TaskGroup() as group:
        stop = group.create_task(stopping.wait())
        await asyncio.wait((stop, future), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
