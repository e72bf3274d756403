"""A run under way as the page sees it: the whole once, then what has changed."""

import asyncio
import time
from collections import deque
from itertools import islice, takewhile
from typing import Any, final

from fedecado.server.coordinator.about import About
from fedecado.server.coordinator.journal import Measurement
from fedecado.server.coordinator.run import Run
from fedecado.server.numerics.options import Options
from fedecado.server.observe.observer import Window
from fedecado.server.observe.plain import Row
from fedecado.server.observe.rows import measurement_row, round_row, run_row, windows_row, worker_row

HISTORY = 2_000
"""Rounds that a browser gets when it opens the page."""

WORKERS_AT_ONCE = 250
"""Workers looked at before the event loop has its turn again."""


@final
class LiveState:
    """What the page was last told. `refresh` brings it up to date and returns the difference.

    A difference names whole rows, so applying one twice, or one whose rows a snapshot already had, does
    no harm.
    """

    def __init__(self, run: Run, about: About, solver: Options | None) -> None:
        self._run, self._about, self._solver = run, about, solver
        self._told: Row = {}
        self._workers: dict[str, Row] = {}
        self._rounds: deque[Row] = deque(maxlen=HISTORY)
        self._measurements: deque[Row] = deque(maxlen=HISTORY)
        self._newest: Measurement | None = None
        self._windows: Row | None = None
        self._windows_of: tuple[Window, ...] = ()

    def snapshot(self) -> Row:
        """Everything."""
        return {
            "source": "live",
            "now": time.time(),
            "run": self._told,
            "rounds": list(self._rounds),
            "measurements": list(self._measurements),
            "windows": self._windows,
            "workers": list(self._workers.values()),
        }

    async def refresh(self) -> Row:
        """What is new since the last call; nothing when it is empty."""
        workers = await self._changed_workers()
        delta: dict[str, Any] = {
            "rounds": self._new_rounds(),
            "measurements": self._new_measurements(),
            "workers": workers,
        }
        told = run_row(self._run, self._about, self._solver)
        if told != self._told:
            self._told = delta["run"] = told
        if self._windows_of is not self._run.journal.windows:
            self._windows_of = self._run.journal.windows
            self._windows = delta["windows"] = windows_row(self._run.journal)
        return {name: part for name, part in delta.items() if part}

    async def _changed_workers(self) -> list[Row]:
        changed = []
        for count, member in enumerate(list(self._run.members.by_id.values()), 1):
            row = worker_row(self._run, member)
            if self._workers.get(member.id) != row:
                self._workers[member.id] = row
                changed.append(row)
            if count % WORKERS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return changed

    def _new_rounds(self) -> list[Row]:
        last = self._rounds[-1]["number"] if self._rounds else 0
        journal, federation = self._run.journal, self._run.federation
        fresh = list(islice(takewhile(lambda r: r.number > last, reversed(journal.rounds)), HISTORY))
        rows: list[Row] = []
        end = 0.0 if federation is None else federation.simulated_time
        for closed in fresh:
            rows.append(round_row(closed, end, journal.started))
            end -= closed.window
        rows.reverse()
        self._rounds.extend(rows)
        return rows

    def _new_measurements(self) -> list[Row]:
        measurements = self._run.journal.measurements
        fresh = list(islice(takewhile(lambda m: m is not self._newest, reversed(measurements)), HISTORY))
        if fresh:
            self._newest = fresh[0]
        rows = [measurement_row(measurement) for measurement in reversed(fresh)]
        self._measurements.extend(rows)
        return rows
