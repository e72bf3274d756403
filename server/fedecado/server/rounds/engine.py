"""The engine: one method takes an event and returns the effects.

A task is `running` while the round waits for it and `overdue` when it no longer does: the lease
ran out, the deadline passed or the client went away. An overdue update that still arrives joins the
round then open, with the version it really started from. A task is `ready` once its update counts.

In `stream` mode a client whose update is already in the open round gets its next task when that
round closes, not before: training again from a version it has just trained on adds nothing new, and a
round holds at most one update per client.
"""

import random
from collections import Counter
from dataclasses import dataclass
from typing import Literal, assert_never

from fedecado.common.errors import RoundError
from fedecado.server.rounds import effects as do
from fedecado.server.rounds import events as on
from fedecado.server.rounds.effects import Effect
from fedecado.server.rounds.events import Event
from fedecado.server.rounds.roster import Roster
from fedecado.server.rounds.rules import Rules

Phase = Literal["running", "overdue", "ready"]


@dataclass(slots=True)
class Task:
    """A piece of work handed to a client."""

    client: str
    version: int
    round: int
    weight: float
    """w_i as it was when the task was handed out."""
    phase: Phase = "running"


class Engine:
    """The state machine of one run."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.roster = Roster()
        self.tasks: dict[int, Task] = {}
        self.round = 0
        """The open round, counted from 1; 0 before the first."""
        self.version = 0
        self.paused = False
        self.finished: str | None = None
        self.ready: list[int] = []
        """Tasks whose updates are in, by arrival."""
        self.closing: tuple[int, ...] = ()
        """Tasks of the round being aggregated."""
        self._open = False
        self._late = False
        self._asked: set[str] = set()
        self._running: set[int] = set()
        self._resting: dict[int, str] = {}
        self._next_task = 0
        self._draws = 0
        self._users: Counter[int] = Counter()
        self._out: list[Effect] = []

    def handle(self, event: Event) -> list[Effect]:
        """Take one event in; raises RoundError, changing nothing, if it makes no sense."""
        self._out = []
        self._dispatch(event)
        if not self.finished:
            self._advance()
        return self._out

    @property
    def enrolled(self) -> int:
        """n: how many clients are enrolled."""
        return len(self.roster)

    @property
    def open(self) -> bool:
        """Whether a round is collecting updates."""
        return self._open

    @property
    def late(self) -> bool:
        """Whether the open round's deadline has passed."""
        return self._late

    def running(self) -> list[int]:
        """Tasks that the open round waits for."""
        return sorted(self._running)

    def _dispatch(self, event: Event) -> None:  # noqa: PLR0912 - one case per event
        match event:
            case on.Enrolled(client, samples, tasks):
                self.roster.enrol(client, samples)
                self._returned(client, tasks)
            case on.Disconnected(client):
                self._disconnected(client)
            case on.Left(client):
                self._left(client)
            case on.UpdateArrived(client, task):
                self._update(client, task)
            case on.TaskFailed(client, task):
                self._failed(client, task)
            case on.LeaseExpired(task):
                self._expired(task)
            case on.DeadlinePassed(number):
                self._deadline(number)
            case on.Aggregated(rate):
                self._aggregated(rate)
            case on.Discarded():
                self._discarded()
            case on.Measured(version, metrics):
                if self.rules.target and not self.finished and self.rules.target.reached(metrics):
                    value = metrics[self.rules.target.metric]
                    self._finish(f"version {version} reached {self.rules.target.metric} {value:g}")
            case on.Paused():
                self.paused = True
            case on.Resumed():
                self.paused = False
            case on.Stopped(reason):
                self._finish(reason)
            case _:
                assert_never(event)

    def _returned(self, client: str, tasks: tuple[int, ...]) -> None:
        held = self.roster[client].task
        if held is not None and held in tasks:
            self._set_phase(held, "running")
            return
        if held is not None:
            self._release(held)
        if all(self.tasks[task].client != client for task in self.ready):
            self._asked.discard(client)

    def _disconnected(self, client: str) -> None:
        held = self.roster[client].task
        self.roster.disconnect(client)
        if held is not None:
            self._overdue(held)

    def _left(self, client: str) -> None:
        held = self.roster[client].task
        if held is not None:
            self._release(held)
        for task in [task for task in self.ready if self.tasks[task].client == client]:
            self.ready.remove(task)
            self._forget(task)
        self.roster.remove(client)

    def _update(self, client: str, task: int) -> None:
        record = self.roster[client]
        if task <= record.last_done:
            self._out.append(do.Accept(task, client, duplicate=True))
        elif task not in self.tasks or self.tasks[task].client != client:
            behind = f"it may be more than {self.rules.max_staleness} versions behind, or was cancelled"
            self._out.append(do.Refuse(task, client, f"task {task} is not open for {client!r}; {behind}"))
        elif self.finished:
            self._release(task)
            self._out.append(do.Refuse(task, client, f"the run is over: {self.finished}"))
        else:
            self._set_phase(task, "ready")
            self.roster.occupy(client, None)
            record.last_done = task
            self._asked.add(client)
            self.ready.append(task)
            self._out.append(do.Accept(task, client))

    def _failed(self, client: str, task: int) -> None:
        if self.roster[client].task != task:
            return
        self._release(task)
        self._resting[task] = client
        self._out.append(do.StartTimer(self.rules.retry, self.round, task))

    def _expired(self, task: int) -> None:
        if task in self._resting:
            self._asked.discard(self._resting.pop(task))
        else:
            self._overdue(task)

    def _overdue(self, task: int) -> None:
        if task in self._running:
            self._set_phase(task, "overdue")

    def _deadline(self, number: int) -> None:
        if not self._open or number != self.round:
            return
        self._late = True
        if self.rules.mode == "rounds":
            for task in self.running():
                self._overdue(task)

    def _aggregated(self, rate: float) -> None:
        if not self.closing:
            raise RoundError("no round is being aggregated")
        done, self.closing = self.closing, ()
        self.version += 1
        self._users[self.version] += 1
        for task in done:
            self._forget(task)
        self._unuse(self.version - 1)
        for task, record in list(self.tasks.items()):
            if record.phase != "ready" and record.version < self.version - self.rules.max_staleness:
                self._cancel(task, f"version {record.version} is too old")
        if self.finished:
            return
        rules = self.rules
        if rules.rest_tolerance is not None and rate < rules.rest_tolerance:
            self._finish(f"at rest: ‖dx_c/dt‖ = {rate:.3g} is below {rules.rest_tolerance:g}")
        elif rules.max_rounds is not None and self.round >= rules.max_rounds:
            self._finish(f"all {rules.max_rounds} rounds are done")

    def _discarded(self) -> None:
        if not self.closing:
            raise RoundError("no round is being aggregated")
        done, self.closing = self.closing, ()
        for task in done:
            self._forget(task)

    def _finish(self, reason: str) -> None:
        if self.finished:
            return
        self.finished, self._open = reason, False
        for task, record in list(self.tasks.items()):
            if record.phase != "ready":
                self._cancel(task, "the run is over")
        self._out.append(do.Finish(reason))

    def _advance(self) -> None:
        """Open, fill and close rounds as far as the rules allow."""
        if not self._open and not self.closing:
            self._open_round()
        if self._open:
            self._hand_out()
            if self._may_close():
                self._close()

    def _open_round(self) -> None:
        if self.paused or self.roster.connected < self.rules.min_clients:
            return
        if self.version == 0 and not self._users:
            self._users[0] = 1
        self.round += 1
        self._open, self._late, self._draws = True, False, 0
        self._asked = {self.tasks[task].client for task in self.ready}
        self._start_deadline()

    def _start_deadline(self) -> None:
        if self.rules.deadline is not None:
            self._out.append(do.StartTimer(self.rules.deadline, self.round))

    def _hand_out(self) -> None:
        """Give tasks to a seeded sample of the free clients, as many as are wanted now."""
        missing = 0 if self.paused else self._missing()
        free = sorted(self.roster.free - self._asked) if missing > 0 else []
        if not free:
            return
        draw = random.Random(f"{self.rules.seed}/{self.round}/{self._draws}")
        self._draws += 1
        if self._late and self.rules.mode == "rounds":
            # Replacements after the deadline get as much time as the first ones had.
            self._late = False
            self._start_deadline()
        for client in sorted(draw.sample(free, min(missing, len(free)))):
            self._assign(client)

    def _missing(self) -> int:
        running = len(self._running)
        if self.rules.mode == "stream":
            return self.rules.wanted(self.enrolled) - running
        if self._draws == 0:
            return self.rules.wanted(self.enrolled)
        # Later draws only replace what a round cannot close without.
        return self.rules.min_updates - running - len(self.ready)

    def _assign(self, client: str) -> None:
        task, self._next_task = self._next_task, self._next_task + 1
        self.tasks[task] = Task(client, self.version, self.round, self.roster.weight(client))
        self._running.add(task)
        self.roster.occupy(client, task)
        self._asked.add(client)
        self._users[self.version] += 1
        self._out.append(do.Assign(task, client, self.version, self.round))
        if self.rules.lease is not None:
            self._out.append(do.StartTimer(self.rules.lease, self.round, task))

    def _may_close(self) -> bool:
        arrived = len(self.ready)
        if arrived < self.rules.min_updates:
            return False
        target = self._target()
        return self._late or not self._running or (target is not None and arrived >= target)

    def _target(self) -> int | None:
        """The number of updates that closes the round; none means all that are running."""
        if self.rules.target_updates is not None:
            return self.rules.target_updates
        if self.rules.mode == "stream":
            return max(self.rules.min_updates, self.rules.wanted(self.enrolled) // 2)
        return None

    def _close(self) -> None:
        self._open = False
        self.closing, self.ready = tuple(self.ready), []
        if self.rules.mode == "rounds":
            for task in self.running():
                self._overdue(task)
        self._out.append(do.CloseRound(self.round, self.closing))

    def _cancel(self, task: int, reason: str) -> None:
        client = self.tasks[task].client
        if self.roster[client].connected:
            self._out.append(do.Cancel(task, client, reason))
        self._release(task)

    def _release(self, task: int) -> None:
        """Take back a task whose update will not count."""
        self.roster.occupy(self.tasks[task].client, None)
        self._forget(task)

    def _set_phase(self, task: int, phase: Phase) -> None:
        self.tasks[task].phase = phase
        if phase == "running":
            self._running.add(task)
        else:
            self._running.discard(task)

    def _forget(self, task: int) -> None:
        self._running.discard(task)
        self._unuse(self.tasks.pop(task).version)

    def _unuse(self, version: int) -> None:
        self._users[version] -= 1
        if self._users[version] == 0:
            del self._users[version]
            self._out.append(do.DropVersion(version))
