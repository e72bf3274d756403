"""Who does the simulated clients' training: this process when a result is due, or helpers beside it.

A window depends on its offer alone, so it can be computed at any time after its assignment; helpers start
on it at once, and the simulation takes the result when the virtual clock says so. Both ways give the same
bits.
"""

from collections import deque
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Protocol, Self

from fedecado.common.errors import FedecadoError
from fedecado.server.federation import Offer, Result
from fedecado.simulator.fleet import Profile
from fedecado.simulator.staff import Staff
from fedecado.simulator.workload import Workload


class Crew(Protocol):
    """Trains for all clients."""

    def begin(self, client: int, offer: Offer, profile: Profile) -> None:
        """A task was handed out; its result may be asked for later."""

    def result(self, task: int) -> Result:
        """The result of a task that was begun; raises what its training raised."""

    def drop(self, task: int) -> None:
        """The result of a task will not be asked for."""


class Alone:
    """Training in this process, when the result is due: what is cancelled before costs nothing."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._begun: dict[int, tuple[int, Offer, Profile]] = {}

    def begin(self, client: int, offer: Offer, profile: Profile) -> None:
        self._begun[offer.task] = (client, offer, profile)

    def result(self, task: int) -> Result:
        return self._workload.train(*self._begun.pop(task))

    def drop(self, task: int) -> None:
        self._begun.pop(task, None)


class Make(Protocol):
    """Builds the workload in a helper; must be importable there."""

    def __call__(self) -> Workload: ...


class Helpers:
    """Training in `count` processes, each with a workload of its own."""

    def __init__(self, count: int, make: Make) -> None:
        self._staff = Staff(count, _train, make)
        self._waiting: deque[tuple[int, Offer, Profile]] = deque()
        self._working: dict[Connection, int] = {}
        self._done: dict[int, Result | FedecadoError] = {}
        self._dropped: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._staff.close()

    def begin(self, client: int, offer: Offer, profile: Profile) -> None:
        self._waiting.append((client, offer, profile))
        self._hand_out()

    def result(self, task: int) -> Result:
        # What the clock wants next goes first.
        self._waiting = deque(sorted(self._waiting, key=lambda job: job[1].task != task))
        while task not in self._done:
            self._hand_out()
            for helper, answer in self._staff.answers():
                self._take(helper, answer)
        self._hand_out()
        answer = self._done.pop(task)
        if isinstance(answer, FedecadoError):
            raise answer
        return answer

    def drop(self, task: int) -> None:
        if task in self._working.values():
            self._dropped.add(task)
        self._done.pop(task, None)
        self._waiting = deque(job for job in self._waiting if job[1].task != task)

    def _hand_out(self) -> None:
        # A helper has one job at a time: two sides that both write into full pipes would wait for ever.
        while self._waiting and self._staff.idle:
            job = self._waiting.popleft()
            self._working[self._staff.give(job)] = job[1].task

    def _take(self, helper: Connection, answer: Result | FedecadoError) -> None:
        task = self._working.pop(helper)
        self._staff.idle.append(helper)
        if task in self._dropped:
            self._dropped.discard(task)
        else:
            self._done[task] = answer


def _train(pipe: Connection, make: Any) -> None:
    """A helper's life: build the workload, then train what comes."""
    workload: Workload = make()
    while True:
        client, offer, profile = pipe.recv()
        try:
            pipe.send(workload.train(client, offer, profile))
        except FedecadoError as error:
            pipe.send(error)
