"""Everything that watches a run, as one thing for the coordinator to start and to close."""

import asyncio
import logging
import time
from contextlib import suppress
from typing import final

from fedecado.server.coordinator.about import About
from fedecado.server.coordinator.journal import ClosedRound, Measurement
from fedecado.server.coordinator.lag import LagMeter
from fedecado.server.coordinator.run import Run
from fedecado.server.numerics.options import Options
from fedecado.server.observe.access import Access
from fedecado.server.observe.actions import Actions
from fedecado.server.observe.disk import measure
from fedecado.server.observe.events import Feed
from fedecado.server.observe.http import Site
from fedecado.server.observe.live import LiveState
from fedecado.server.observe.metrics import RunMetrics
from fedecado.server.observe.observer import Outcome, Window
from fedecado.server.store import Flush

log = logging.getLogger(__name__)

TICK_SECONDS = 0.5
"""Least time between two deltas."""
SHARE = 0.1
"""The most of the event loop's time that looking at the run may take."""
DISK_SECONDS = 15.0
"""Time between two looks at how much room the run takes."""
HEARTBEAT_SECONDS = 5.0
"""A browser is told the time this often even when nothing happens."""


@final
class Observatory:
    """The run's observer: it counts for machines and keeps the page up to date."""

    def __init__(
        self, run: Run, about: About, lag: LagMeter, solver: Options | None, access: Access | None = None
    ) -> None:
        self._lag, self._run, self._access = lag, run, access or Access()
        self._live = LiveState(run, about, solver)
        self._metrics = RunMetrics(run, about)
        self.feed = Feed(self._live.snapshot)
        self._site = Site(
            self.feed,
            self._live.snapshot,
            prepare=self._tell,
            scrape=self._metrics.scrape,
            access=self._access,
            extend=Actions(run, self._access).add_to,
        )
        self._watching: list[asyncio.Task[None]] = []
        self._published = 0.0

    @property
    def url(self) -> str:
        return self._site.url

    async def start(self, bind: str) -> None:
        """Serve, and watch from now on."""
        await self._site.start(bind)
        self._watching = [asyncio.create_task(work) for work in (self._watch(), self._weigh())]
        log.info("dashboard on %s, metrics on %s/metrics", self.url, self.url)
        if self._access.private:
            return
        if self._access.open:
            log.warning("anyone who can reach %s can read about the run; it asks for no password", bind)
        elif not self._access.operable:
            log.warning(
                "beyond this machine %s shows metrics only; set network.admin_token_file to see the page "
                "with that token, or observe.public if a proxy before it asks for a login",
                bind,
            )

    async def close(self) -> None:
        """Show how it ended, and stop. Idempotent."""
        if not self._watching:
            return
        watching, self._watching = self._watching, []
        for task in watching:
            task.cancel()
        await asyncio.wait(watching)
        await self._tell()
        await self._site.close()

    def updated(self, outcome: Outcome, reason: str = "") -> None:
        self._metrics.updated(outcome, reason)

    def refused(self, reason: str) -> None:
        self._metrics.refused(reason)

    def closed(self, closed: ClosedRound, windows: tuple[Window, ...]) -> None:
        self._metrics.closed(closed, windows)

    def measured(self, measurement: Measurement) -> None:
        self._metrics.measured(measurement)

    def discarded(self) -> None:
        self._metrics.discarded()

    def saved(self, seconds: float, *, failed: bool) -> None:
        self._metrics.saved(seconds, failed=failed)

    def flushed(self, what: Flush, seconds: float) -> None:
        self._metrics.flushed(what, seconds)

    async def _weigh(self) -> None:
        """Look at the disk now and then: a scrape must not wait for it."""
        while True:
            with suppress(OSError):
                found = await asyncio.to_thread(measure, self._run.files.folder)
                if found is not None:
                    self._metrics.state.store_bytes, self._metrics.state.free_bytes = found
            await asyncio.sleep(DISK_SECONDS)

    async def _watch(self) -> None:
        """Look at the run again and again: most of what the page shows is state, not events."""
        spent = 0.0
        while True:
            await asyncio.sleep(max(TICK_SECONDS, spent / SHARE))
            self._metrics.lagged(self._lag.worst)
            self._lag.worst = 0.0
            began = time.perf_counter()
            try:
                if self.feed.watched:
                    await self._tell()
            except Exception:
                log.exception("the dashboard could not be brought up to date")
            spent = time.perf_counter() - began

    async def _tell(self) -> None:
        delta = await self._live.refresh()
        now = time.monotonic()
        if delta or now - self._published > HEARTBEAT_SECONDS:
            self._published = now
            self.feed.publish({"now": time.time(), **delta})
