"""What every federated algorithm is: a pair of what a client adds to its gradient and what the
centre does with updates.

A client steps  x <- x - eta (grad f(x) + mu (x - x_start) - b)  whatever the algorithm; `mu` is the
assignment's pull and `b` its drift. The centre gathers updates as they arrive (`gather`, `Gather.add`)
and combines them (`aggregate`). States are values until `Aggregated.finish`, after everything that can fail
has succeeded: it gives the next one, which takes the memory of long vectors over unless they are read-only.
What is as large as clients x parameters lives in a `ClientVectors` and changes only then, too.
"""

from collections.abc import Callable, Iterable
from dataclasses import field, replace
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from fedecado.common.layout import Vector
from fedecado.common.records import record
from fedecado.server.algorithms.gather import Gather
from fedecado.server.algorithms.updates import Update
from fedecado.server.algorithms.vectors import ClientVectors
from fedecado.server.numerics.circuit import Floats
from fedecado.server.numerics.robust import Pulls


@record
class Assignment:
    """What a client adds to its gradient: pull mu towards its start, drift b."""

    pull: float = 0.0
    kept: Vector | None = None
    """w_i b, as it is kept of a client, to look at until its next update is aggregated."""
    weight: float = 1.0
    """w_i, if that is not part of it already."""
    after: float = 0.0
    """How many times b is added when the window is over, times what its steps add up to."""

    @property
    def divisor(self) -> float:
        """What makes b of what is kept."""
        return self.weight * (1.0 + self.after)

    @property
    def drift(self) -> Vector | None:
        """b as a vector of its own; what is sent is divided on the way."""
        if self.kept is None or self.divisor == 1.0:
            return self.kept
        return np.asarray(self.kept / self.kept.dtype.type(self.divisor))

    def at_once(self) -> "Assignment":
        """The same for a client that cannot add anything when the window is over."""
        return replace(self, after=0.0)


@record
class Report:
    """Numbers worth showing about one central update."""

    updates: int
    time: float
    """T: the common time of the round."""
    rate: float
    """RMS of dx_c/dt; for algorithms without a circuit, of the central step divided by T."""
    details: dict[str, float] = field(default_factory=dict)
    flows: dict[str, float] = field(default_factory=dict)
    """RMS of each active client's new flow I_i; these, and what `details` say of them, are known once the
    state is complete."""
    distrusted: frozenset[str] = frozenset()
    """Clients of the round that got the others' mean pull instead of their own."""


class HasCentre(Protocol):
    """The part of a state that every algorithm has."""

    @property
    def central(self) -> Vector: ...
    @property
    def version(self) -> int: ...
    @property
    def time(self) -> float: ...


S = TypeVar("S", bound=HasCentre)


class Moved(NamedTuple):
    """How a client's vector moved, from the vectors of its own update and the new centre x_c.

    toward (x_c - start) - along (end - start)
    """

    toward: float
    along: float


@record
class Aggregated(Generic[S]):
    """A central update: `central` can be sent at once; `finish` gives the next state, for the old one."""

    central: Vector
    report: Report
    finish: Callable[[], S]
    moved: dict[str, Moved] = field(default_factory=dict, hash=False)
    """Clients that can repeat what became of their vectors; known once the state is complete."""


class Algorithm(Protocol[S]):
    """The interface of every algorithm."""

    def init(self, central: Vector, vectors: ClientVectors) -> S:
        """The state before the first round."""

    def assignment(self, state: S, client: str, weight: float) -> Assignment:
        """What `client` adds to its gradient in its next window."""

    def gather(self, state: S, capacity: int = 0) -> Gather:
        """An empty round that starts from `state`."""

    def aggregate(self, state: S, gathered: Gather, enrolled: int) -> Aggregated[S]:
        """The central update from the gathered ones; `state` itself is not touched."""

    def forget(self, state: S, client: str) -> S:
        """Take a client that left for good out of the state."""

    def pulls(self, gathered: Gather) -> Pulls:
        """How displacements are compared with each other; outliers are judged by that."""

    def average(self, rows: Vector, shares: Floats) -> Vector:
        """The mean of what is not trained, such as running statistics; a row per client."""


class Plain:
    """Displacements as they are, means as means."""

    def pulls(self, gathered: Gather) -> Pulls:
        return Pulls(np.ones(len(gathered)), [None] * len(gathered))

    def average(self, rows: Vector, shares: Floats) -> Vector:
        return np.asarray(shares.astype(rows.dtype) @ rows)


def aggregate_all(algorithm: Algorithm[S], state: S, updates: Iterable[Update], enrolled: int) -> S:
    """Gather, aggregate and finish in one go."""
    gathered = algorithm.gather(state)
    for update in updates:
        gathered.add(update)
    return algorithm.aggregate(state, gathered, enrolled).finish()
