"""The engine: one method takes an event and returns the effects.

A task is `running` while the round waits for it, `away` while its client is disconnected, and
`overdue` once its time is over: its lease ran out, the deadline passed or its round closed. An overdue
update that still arrives joins the round then open, with the version it really started from. A task is
`ready` once its update counts.

In `stream` mode a client whose update is already in the open round gets its next task when that
round closes, not before: training again from a version it has just trained on adds nothing new, and a
round holds at most one update per client.
"""

import random
from collections.abc import Collection
from typing import Any, Self, assert_never

from fedecado.common.errors import RoundError
from fedecado.server.rounds import effects as do
from fedecado.server.rounds import events as on
from fedecado.server.rounds.effects import Effect
from fedecado.server.rounds.events import Event
from fedecado.server.rounds.ledger import Ledger, Task
from fedecado.server.rounds.roster import Roster
from fedecado.server.rounds.rules import Rules


class Engine:
    """The state machine of one run; its attributes are there to be read."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.roster = Roster()
        self.ledger = Ledger()
        self.round = 0
        """The open round, counted from 1; 0 before the first."""
        self.open = False
        """Whether a round is collecting updates."""
        self.late = False
        """Whether the open round's deadline has passed."""
        self.draws = 0
        """How often the open round has handed out tasks."""
        self.resting: dict[int, str] = {}
        """Clients that rest after a failed task, by the number of the timer."""
        self.banned: dict[str, str] = {}
        """Why clients that may not enrol were shut out."""
        self.paused = False
        self.finished: str | None = None
        self._out: list[Effect] = []

    def handle(self, event: Event) -> list[Effect]:
        """Take one event in; raises RoundError, changing nothing, if it makes no sense."""
        self._out = []
        self._dispatch(event)
        if not self.finished:
            self._advance()
        if self.ledger.unused:
            self._out += [do.DropVersion(version) for version in self.ledger.take_unused()]
        return self._out

    @classmethod
    def restore(cls, rules: Rules, snapshot: dict[str, Any]) -> Self:
        """An engine that goes on where the one that was saved stood."""
        from fedecado.server.rounds.snapshot import load  # it imports this module

        return load(cls(rules), snapshot)

    def snapshot(self) -> dict[str, Any]:
        """Everything but the rules, as plain values that JSON can hold."""
        from fedecado.server.rounds.snapshot import dump  # it imports this module

        return dump(self)

    @property
    def enrolled(self) -> int:
        """n: how many clients are enrolled."""
        return len(self.roster.clients)

    @property
    def needed(self) -> int:
        """Connected clients needed to open a round: all that were called for at first, then any."""
        return self.rules.min_clients if self.round == 0 else 1

    @property
    def version(self) -> int:
        """The newest version."""
        return self.ledger.version

    @property
    def tasks(self) -> dict[int, Task]:
        """Open tasks, and those whose updates are not yet aggregated."""
        return self.ledger.tasks

    @property
    def ready(self) -> Collection[int]:
        """Tasks whose updates are in, by arrival."""
        return self.ledger.ready.keys()

    @property
    def closing(self) -> tuple[int, ...]:
        """Tasks of the round being aggregated."""
        return self.ledger.closing

    def running(self) -> list[int]:
        """Tasks that the open round waits for."""
        return sorted(self.ledger.running)

    def _dispatch(self, event: Event) -> None:  # noqa: PLR0912 - one case per event
        match event:  # the most frequent ones first
            case on.UpdateArrived(client, task):
                self._update(client, task)
            case on.Aggregated(rate):
                self._aggregated(rate)
            case on.Enrolled(client, samples, tasks):
                self._enrolled(client, samples, tasks)
            case on.Disconnected(client):
                self._disconnected(client)
            case on.Left(client):
                self._left(client)
            case on.Banned(client, reason):
                self.banned[client] = reason
                if client in self.roster:
                    self._left(client)
            case on.Unbanned(client):
                self.banned.pop(client, None)
            case on.TaskFailed(client, task):
                self._failed(client, task)
            case on.LeaseExpired(task):
                self._expired(task)
            case on.DeadlinePassed(number):
                self._deadline(number)
            case on.Discarded():
                self._let_go()
            case on.Measured(version, metrics):
                if self.rules.target and self.rules.target.reached(metrics):
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

    def _enrolled(self, client: str, samples: int, tasks: tuple[int, ...]) -> None:
        if client in self.banned:
            raise RoundError(f"client {client!r} is banned; lift the ban first")
        self.roster.enrol(client, samples)
        self._returned(client, tasks)

    def _returned(self, client: str, tasks: tuple[int, ...]) -> None:
        record = self.roster[client]
        for task in dict.fromkeys(tasks):
            if task == record.last_done:
                self._out.append(do.Accept(task, client, duplicate=True))
            elif task != record.task:
                self._out.append(do.Cancel(task, client, f"task {task} is no longer open"))
        if record.task is not None and record.task in tasks:
            if self.tasks[record.task].phase == "away":
                self.ledger.move(record.task, "running")
            return
        if record.task is not None:
            self._release(record.task)
        last = self.roster.asked.get(client)
        if last not in self.tasks and last not in self.resting:
            self.roster.ask_again(client)

    def _disconnected(self, client: str) -> None:
        held = self.roster[client].task
        self.roster.disconnect(client)
        if held in self.ledger.running:
            self.ledger.move(held, "away")

    def _left(self, client: str) -> None:
        held = self.roster[client].task
        if held is not None:
            self._release(held)
        last = self.roster.asked.get(client)
        if last in self.ledger.ready:
            self.ledger.forget(last)
        elif last in self.resting:
            del self.resting[last]
        self.roster.remove(client)

    def _update(self, client: str, task: int) -> None:
        record = self.roster[client]
        if task == record.last_done:
            self._out.append(do.Accept(task, client, duplicate=True))
        elif self.finished:
            self._out.append(do.Refuse(task, client, f"the run is over: {self.finished}"))
        elif task != record.task:
            behind = f"it may be more than {self.rules.max_staleness} versions behind, or was cancelled"
            self._out.append(do.Refuse(task, client, f"task {task} is not open for {client!r}; {behind}"))
        else:
            self.ledger.move(task, "ready")
            self.roster.ask(client, task, None)
            record.last_done = task
            self._out.append(do.Accept(task, client))

    def _failed(self, client: str, task: int) -> None:
        if self.roster[client].task != task:
            return
        # The rest has a number of its own, for the failed task's lease may end during it.
        rest = self.ledger.number()
        self.resting[rest] = client
        self.roster.ask(client, rest, None)
        self.ledger.forget(task)
        self._start_timer(self.rules.retry, rest)

    def _expired(self, number: int) -> None:
        client = self.resting.pop(number, None)
        if client is None:
            self._overdue(number)
        else:
            self.roster.ask_again(client)

    def _overdue(self, task: int) -> None:
        if task in self.tasks and self.tasks[task].phase != "ready":
            self.ledger.move(task, "overdue")

    def _all_overdue(self) -> None:
        if self.rules.mode == "rounds":
            for task in self.tasks:
                self._overdue(task)

    def _deadline(self, number: int) -> None:
        if self.open and number == self.round:
            self.late = True
            self._all_overdue()

    def _aggregated(self, rate: float) -> None:
        self._let_go()
        self.ledger.publish()
        self._cancel_before(self.version - self.rules.max_staleness, "its version is too old")
        rest = self.rules.rest_tolerance
        if rest is not None and rate < rest:
            self._finish(f"at rest: ‖dx_c/dt‖ = {rate:.3g} is below {rest:g}")

    def _let_go(self) -> None:
        """Part with the updates of the round that was aggregated or given up."""
        if not self.closing:
            raise RoundError("no round is being aggregated; report this once after each CloseRound")
        self.ledger.forget_closed()

    def _finish(self, reason: str) -> None:
        if self.finished:
            return
        self.finished, self.open = reason, False
        self._cancel_before(self.version + 1, "the run is over")
        self._out.append(do.Finish(reason))

    def _advance(self) -> None:
        """Open, fill and close rounds as far as the rules allow."""
        if not self.open and not self.closing:
            self._open_round()
        if self.open:
            self._hand_out()
            ready = len(self.ledger.ready)
            complete = self.rules.complete(self.enrolled, len(self.ledger.running), ready)
            if complete or (self.late and ready >= self.rules.min_updates):
                self._close()

    def _open_round(self) -> None:
        if self.rules.max_rounds is not None and self.round >= self.rules.max_rounds:
            self._finish(f"all {self.rules.max_rounds} rounds are done")
            return
        if self.paused or self.roster.connected < self.needed:
            return
        self.round += 1
        self.open, self.late, self.draws = True, False, 0
        self.resting = {}
        self.roster.start_round({self.tasks[task].client: task for task in self.ready})
        self._start_timer(self.rules.deadline)

    def _start_timer(self, seconds: float | None, number: int | None = None) -> None:
        if seconds is not None:
            self._out.append(do.StartTimer(seconds, self.round, number))

    def _hand_out(self) -> None:
        """Give tasks to a seeded sample of the idle clients, as many as are wanted now."""
        idle = self.roster.idle
        if self.paused or not idle:
            return
        running, ready = len(self.ledger.running), len(self.ledger.ready)
        missing = self.rules.missing(self.enrolled, running, ready, first=self.draws == 0)
        if missing <= 0:
            return
        # Who has to ask everyone need not draw.
        drawn = idle.copy()
        if missing < len(idle):
            drawn = sorted(
                random.Random(f"{self.rules.seed}/{self.round}/{self.draws}").sample(idle, missing)
            )
        self.draws += 1
        if self.late and self.rules.mode == "rounds":
            # Replacements after the deadline get as much time as the first ones had.
            self.late = False
            self._start_timer(self.rules.deadline)
        for client in drawn:
            self._assign(client)

    def _assign(self, client: str) -> None:
        task, version = self.ledger.number(), self.ledger.version
        self.ledger.put(task, Task(client, version, self.round, self.roster.weight(client)))
        self.roster.ask(client, task, task)
        self._out.append(do.Assign(task, client, version, self.round))
        self._start_timer(self.rules.lease, task)

    def _close(self) -> None:
        self.open = False
        self._out.append(do.CloseRound(self.round, self.ledger.close()))
        self._all_overdue()

    def _cancel_before(self, version: int, reason: str) -> None:
        """Take back open tasks that started from older versions."""
        for task, record in list(self.tasks.items()):
            if record.phase != "ready" and record.version < version:
                if self.roster[record.client].connected:
                    self._out.append(do.Cancel(task, record.client, reason))
                self._release(task)

    def _release(self, task: int) -> None:
        """Take back a task whose update will not count."""
        self.roster.occupy(self.tasks[task].client, None)
        self.ledger.forget(task)
