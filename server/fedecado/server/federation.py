"""A run without its network: the engine's decisions carried out on vectors.

The driver (simulator or coordinator) passes events to `engine`, and for the effects calls `offer`,
`accept`, `aggregate`, `commit` and `drop`. The heavy calls are apart so that a coordinator can run
them beside its event loop, in this order: `absorb` while updates arrive, `aggregate` when the
round closes (the new centre is ready), `commit` (flows are rewritten; the next round may be handed out).
"""

import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedecado.common.errors import NonFiniteError, RoundError
from fedecado.common.layout import Layout, Vector
from fedecado.common.records import record
from fedecado.server.algorithms import (
    Aggregated,
    Algorithm,
    Assignment,
    ClientVectors,
    Gather,
    Guarded,
    MemoryVectors,
    Moved,
    Report,
    Update,
    check_scalars,
)
from fedecado.server.numerics.columns import BLOCK
from fedecado.server.numerics.finite import largest_square, require_usable
from fedecado.server.rounds import Engine
from fedecado.server.rounds.ledger import Task

if TYPE_CHECKING:
    from fedecado.server.store.landing import Landing

ROUNDS_COMPARED = 5
"""Rounds whose median tells what a usual update is."""


@record
class Follows:
    """How the newest version's vector of a client follows from its last update."""

    version: int
    task: int
    """Of the update."""
    moved: Moved


@record
class Offer:
    """Everything a client needs for one task."""

    task: int
    version: int
    state: Vector
    """Parameters and buffers of the version."""
    weight: float
    assignment: Assignment
    follows: Follows | None = None
    """How the client can make what is kept of it by itself; none if it cannot."""


@record
class Result:
    """What a client made of an offer."""

    state: Vector
    """Its parameters and buffers at the end of the window."""
    time: float
    """T_i, the sum of its steps eta / w_i."""
    curvature: float = 0.0
    steps: int = 0
    loss_before: float = math.nan
    loss_after: float = math.nan
    square: float = field(default=math.nan, compare=False)
    """Squared length of `state`, if whoever received it took that on the way."""
    landing: "Landing | None" = field(default=None, compare=False, repr=False)
    """The file that `state` goes to already."""


@record
class Content:
    """What a federation holds between rounds; the algorithm's own vectors change with the next one."""

    state: Any
    """The algorithm's own."""
    versions: Mapping[int, Vector]
    results: Mapping[int, Result]
    """Accepted ones of the open round, by task."""


@record
class _Delivered:
    update: Update
    result: Result


class Federation:
    """Central state, versions in use, and the updates of the open round."""

    def __init__(
        self,
        engine: Engine,
        algorithm: Algorithm[Any],
        layout: Layout,
        initial: Vector,
        vectors: ClientVectors | None = None,
    ) -> None:
        layout.check(initial, "initial state")
        _require_usable(initial, layout, "the initial state")
        self.engine, self.layout = engine, layout
        self._algorithm = algorithm
        self._versions: dict[int, Vector] = {0: initial}
        self._state = algorithm.init(
            initial[: layout.parameters], MemoryVectors() if vectors is None else vectors
        )
        self._delivered: dict[int, _Delivered] = {}
        self._forgetting = threading.Lock()
        """A client is forgotten on the event loop while another thread may be on its way through here."""
        self._gather: Gather | None = None
        self._absorbed = 0
        """How many leading tasks of the open round are in the gather."""
        self._pending: tuple[Aggregated[Any], Vector] | None = None
        self._follows: dict[str, Follows] = {}
        self.spends_updates = False
        """Whether nobody else reads an accepted update, so that its memory may be used again."""

    @classmethod
    def resumed(cls, engine: Engine, algorithm: Algorithm[Any], layout: Layout, content: Content) -> Self:
        """A federation that goes on where another stood, with an engine that does so, too."""
        federation = cls(engine, algorithm, layout, content.versions[content.state.version])
        federation._state, federation._versions = content.state, dict(content.versions)
        for task, result in content.results.items():
            federation.accept(task, result)
        return federation

    def content(self) -> Content:
        """What it holds; nothing is copied."""
        results = {task: delivered.result for task, delivered in self._delivered.items()}
        return Content(self._state, dict(self._versions), results)

    def change_algorithm(self, algorithm: Algorithm[Any]) -> None:
        """Go on with other knobs of the same algorithm."""
        self._algorithm = algorithm

    @property
    def version(self) -> int:
        """The newest complete version."""
        return int(self._state.version)

    @property
    def simulated_time(self) -> float:
        """Sum of the windows T over all rounds."""
        return float(self._state.time)

    @property
    def central(self) -> Vector:
        """Parameters and buffers of the newest complete version."""
        return self._versions[self.version]

    @property
    def versions_held(self) -> list[int]:
        return sorted(self._versions)

    def state_of(self, version: int) -> Vector | None:
        """Parameters and buffers of a version that is still held."""
        return self._versions.get(version)

    def offer(self, task: int) -> Offer:
        """The content of an `Assign`; call it when the effect is carried out."""
        with self._forgetting:
            given, state = self._open(task)
            central = self._state
            assignment = self._algorithm.assignment(central, given.client, given.weight)
            follows = self._follows.get(given.client)
        # Another thread may have completed a version meanwhile.
        if follows is not None and not follows.version == given.version == central.version:
            follows = None
        return Offer(task, given.version, state, given.weight, assignment, follows)

    def check(self, task: int, result: Result, usual: float | None = None) -> None:
        """Raise if a result could not be aggregated; nothing has changed then.

        `usual` is how long displacements were in recent rounds (`usual_displacement`), if that is known.
        """
        given, _ = self._open(task)
        self.layout.check(result.state, f"update of client {given.client!r}")
        if not is_usable(result):
            _require_usable(result.state, self.layout, f"update of client {given.client!r}")
        check_scalars(given.client, result.time, given.weight, result.curvature)
        if usual is not None and isinstance(self._algorithm, Guarded):
            self._algorithm.check(self._update(task, result), usual)

    def accept(self, task: int, result: Result) -> None:
        """Keep a checked result that the engine has accepted."""
        self._delivered[task] = _Delivered(self._update(task, result), result)

    @property
    def eager(self) -> bool:
        """Whether updates are worth taking in as they arrive: short ones cost less all at once."""
        return self.layout.parameters > BLOCK

    @property
    def guarded(self) -> bool:
        """Whether updates are compared with what is usual."""
        return isinstance(self._algorithm, Guarded)

    def absorb(self, tasks: tuple[int, ...]) -> None:
        """Take accepted updates of the open round, by arrival, into its sums, ahead of its close.

        Short ones are left for the close: what is gathered at once, and so the sums' last bits, must not
        depend on when this was called.
        """
        if not self.eager:
            return
        self._gathered(tasks[self._absorbed :])
        self._absorbed = len(tasks)

    def aggregate(self, tasks: tuple[int, ...], enrolled: int | None = None) -> Vector:
        """The new central state from these tasks' updates; not official until `commit`.

        `enrolled` is n when the round closed; whoever aggregates later, in a thread, has to say it.
        """
        gathered = self._gathered(tasks)
        gathered.place = partial(self._place, tasks)
        n = self.engine.enrolled if enrolled is None else enrolled
        aggregated = self._algorithm.aggregate(self._state, gathered, max(n, len(gathered)))
        central = aggregated.central
        if self.layout.parameters < self.layout.size:
            buffers = self._mean_buffers(tasks, aggregated.report.distrusted)
            central = np.concatenate([central, buffers])
        self._pending = aggregated, central
        return central

    def _place(self, tasks: tuple[int, ...]) -> Vector | None:
        """The memory of an update, for the new centre: of the first, which is on the disk if any is."""
        result = next((self._delivered[task].result for task in tasks if task in self._delivered), None)
        if result is None or len(result.state) > self.layout.parameters or not result.state.flags.writeable:
            return None
        free = self.spends_updates if result.landing is None else result.landing.finish()
        return result.state if free else None

    def _mean_buffers(self, tasks: tuple[int, ...], without: frozenset[str]) -> Vector:
        """The updates' buffers, averaged by weight; those of all clients if none would be left."""
        # By task: updates absorbed early may stand in another order in the gather.
        everyone = [self._delivered[task] for task in tasks]
        delivered = [kept for kept in everyone if kept.update.client not in without] or everyone
        weights = np.asarray([kept.update.weight for kept in delivered])
        buffers = np.stack([kept.result.state[self.layout.parameters :] for kept in delivered])
        return self._algorithm.average(buffers, weights / weights.sum())

    def commit(self, tasks: tuple[int, ...]) -> Report:
        """Complete the round: rewrite the clients' vectors and publish the new version."""
        if self._pending is None:
            raise RoundError("nothing to commit; aggregate first")
        (aggregated, central), self._pending = self._pending, None
        state = aggregated.finish()
        # In this order: other threads look the newest version up.
        self._versions[state.version] = central
        clients = {self._delivered[task].update.client: task for task in tasks if task in self._delivered}
        self._follows = {
            client: Follows(state.version, clients[client], moved)
            for client, moved in aggregated.moved.items()
        }
        self._state = state
        self._close(tasks)
        return aggregated.report

    def discard(self, tasks: tuple[int, ...]) -> None:
        """Give up a round that could not be aggregated; the state stays as it was."""
        self._pending = None
        self._close(tasks)

    def drop(self, version: int) -> None:
        """Carry out `DropVersion`."""
        if version != self.version:
            self._versions.pop(version, None)

    def forget(self, client: str) -> None:
        """Take a client that left for good out of the balance; not between `aggregate` and `commit`."""
        closing = self.engine.closing
        with self._forgetting:
            self._state = self._algorithm.forget(self._state, client)
            self._follows.pop(client, None)
            kept = self._delivered.items()
            for task in [t for t, k in kept if k.update.client == client and t not in closing]:
                del self._delivered[task]
            self._gather, self._absorbed = None, 0

    def results(self, tasks: tuple[int, ...]) -> list[tuple[str, Result]]:
        """Clients and results behind these tasks, for reporting."""
        return [(self._delivered[task].update.client, self._delivered[task].result) for task in tasks]

    def _open(self, task: int) -> tuple[Task, Vector]:
        """A task and its version; RoundError if the engine gave it up while a thread was on its way here."""
        given = self.engine.ledger.tasks.get(task)
        state = None if given is None else self._versions.get(given.version)
        if given is None or state is None:
            raise RoundError(f"task {task} is not open")
        return given, state

    def _update(self, task: int, result: Result) -> Update:
        (given, start), end, d = self._open(task), result.state, self.layout.parameters
        if d < len(end):
            start, end = start[:d], end[:d]
        return Update(
            client=given.client,
            version=given.version,
            start=start,
            end=end,
            time=result.time,
            weight=given.weight,
            curvature=result.curvature,
        )

    def _gathered(self, tasks: tuple[int, ...]) -> Gather:
        if not self.eager:
            with self._forgetting:
                gather = self._current_gather(len(tasks))
                there = (self._delivered.get(task) for task in tasks)
                updates = [kept.update for kept in there if kept is not None]
                gather.hold([update for update in updates if update.client not in gather.clients])
                return gather
        for task in tasks:
            # One at a time, so that whoever forgets a client need not wait for all.
            with self._forgetting:
                gather = self._current_gather(len(tasks))
                kept = self._delivered.get(task)  # none if its client was forgotten meanwhile
                if kept is not None and kept.update.client not in gather.clients:
                    gather.add(kept.update)
        with self._forgetting:
            return self._current_gather(len(tasks))

    def _current_gather(self, tasks: int) -> Gather:
        if self._gather is None:
            self._gather = self._algorithm.gather(
                self._state, capacity=len(self.engine.ledger.running) + tasks
            )
        return self._gather

    def _close(self, tasks: tuple[int, ...]) -> None:
        self._gather, self._absorbed = None, 0
        for task in tasks:
            self._delivered.pop(task, None)


def usual_displacement(newest_first: Iterable[Mapping[str, float]]) -> float | None:
    """The median length of displacements over the last guarded rounds, from their reports' details."""
    found = (details.get("median_displacement") for details in islice(newest_first, ROUNDS_COMPARED))
    lengths = [length for length in found if length is not None]
    return float(np.median(lengths)) if lengths else None


def is_usable(result: Result) -> bool:
    """Whether the length alone, buffers included, shows that a state can be aggregated."""
    return result.square < largest_square(result.state.dtype)


def _require_usable(state: Vector, layout: Layout, what: str) -> None:
    """Raise unless parameters and buffers can be aggregated."""
    try:
        require_usable(state[: layout.parameters])
        if not np.isfinite(state[layout.parameters :]).all():
            raise NonFiniteError("a buffer has NaN or infinite values")
    except NonFiniteError as error:
        raise NonFiniteError(f"{what}: {error}") from error
