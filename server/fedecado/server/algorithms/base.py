"""What every federated algorithm is: a pair of what a client adds to its gradient and what the
centre does with updates.

A client steps  x <- x - eta (grad f(x) + mu (x - x_start) - b)  whatever the algorithm; `mu` is the
assignment's pull and `b` its drift. The centre gathers updates as they arrive (`gather`, `Gather.add`)
and combines them (`aggregate`). States are values until `Aggregated.finish`, after everything that can fail
has succeeded: it gives the next one, which takes the memory of long vectors over unless they are read-only.
What is as large as clients x parameters lives in a `ClientVectors` and changes only then, too.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from fedecado.common.errors import (
    DuplicateClientError,
    LayoutError,
    NonFiniteError,
    NoUpdatesError,
    WindowError,
)
from fedecado.common.layout import Vector
from fedecado.common.records import record
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.circuit import Floats
from fedecado.server.numerics.finite import require_finite, squared_length
from fedecado.server.numerics.robust import Pulls

SMALLEST, LARGEST = 1e-12, 1e12
"""Bounds of T_i, w_i and of the curvature h_i (from 0).

Real ones lie far inside: steps are 1e-6 to 10 long and a window has some millions at most. With these
bounds G lies in [1e-12, 2e24] and no mix of windows brings G, L or dt / (L G) near the ends of
floating-point range, so an absurd client is refused alone and cannot spoil the round of the others.
"""


@record
class Update:
    """What a client reports about one window."""

    client: str
    version: int
    """The central version it started from."""
    start: Vector
    """That version's parameters."""
    end: Vector
    """The client's parameters at the end of its window."""
    time: float
    """T_i: the sum of its steps eta / w_i."""
    weight: float = 1.0
    """w_i as it was given with the assignment."""
    curvature: float = 0.0
    """h_i, the mean curvature of its loss."""

    def check(self) -> None:
        """Raise unless the scalars are ones an aggregation can use."""
        check_scalars(self.client, self.time, self.weight, self.curvature)


def check_scalars(client: str, time: float, weight: float, curvature: float) -> None:
    """Raise unless T_i, w_i and h_i are ones an aggregation can use."""
    if not SMALLEST <= time <= LARGEST:
        raise WindowError(
            f"client {client!r} reports a window of T_i = {time!r}; it must be a time between "
            f"{SMALLEST:g} and {LARGEST:g}, so the client must take steps with a sane learning rate"
        )
    if not SMALLEST <= weight <= LARGEST:
        raise NonFiniteError(
            f"client {client!r} has weight {weight!r}; it must be between {SMALLEST:g} and "
            f"{LARGEST:g}, 1 being an average share of the data"
        )
    if not 0 <= curvature <= LARGEST:
        raise NonFiniteError(
            f"client {client!r} reports curvature {curvature!r}; it must be between 0 and {LARGEST:g}"
        )


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


RESPONSE: Final = "response/"
"""Before a client's name: what is remembered of its responses. No worker's id has such a character."""


class ClientVectors(Protocol):
    """One vector per client (flows, control variates, duals); absent ones count as zero."""

    def clients(self) -> Collection[str]:
        """Names that have a vector; those of what is remembered of responses are among them."""

    def get(self, client: str) -> Vector | None:
        """The client's vector, to look at until its next one is made.

        Where it may be written to, the next one takes its memory; whoever keeps it for longer makes it
        read-only.
        """

    def put(self, client: str, vector: Vector) -> None:
        """Replace the client's vector; the caller gives `vector` up and no longer changes it."""

    def drop(self, client: str) -> None:
        """Forget the client's vector, if there is one."""

    def stamp(self, client: str) -> object:
        """Something that is another object once others have put a vector for the client; None without one."""


class MemoryVectors:
    """Client vectors in memory."""

    def __init__(self) -> None:
        self._vectors: dict[str, Vector] = {}

    def clients(self) -> Collection[str]:
        return self._vectors.keys()

    def get(self, client: str) -> Vector | None:
        return self._vectors.get(client)

    def put(self, client: str, vector: Vector) -> None:
        self._vectors[client] = vector

    def drop(self, client: str) -> None:
        self._vectors.pop(client, None)

    def stamp(self, client: str) -> object:
        return self._vectors.get(client)


class Lengths:
    """Squared lengths of clients' vectors, kept from when they were written or first read."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, float]] = {}

    def square(self, vectors: ClientVectors, client: str) -> float:
        """That of a client's vector, 0 if it has none; raises if what is stored was damaged."""
        stamp, square = self._known.get(client, (None, 0.0))
        current = vectors.stamp(client)
        if current is stamp:
            return square
        vector = vectors.get(client)
        if vector is None:
            return 0.0
        square = squared_length(vector)
        require_finite(vector, square, "stored flow")
        self._known[client] = current, square
        return square

    def note(self, vectors: ClientVectors, client: str, square: float) -> None:
        """The client's vector, which was just put, has this squared length."""
        self._known[client] = vectors.stamp(client), square

    def drop(self, client: str) -> None:
        """Forget a client."""
        self._known.pop(client, None)


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


class Gather:
    """The updates of one round, taken in one by one.

    `add` does the work that can be done before the round closes (displacements, inner products,
    checks) and raises without a trace when an update cannot be used.
    """

    def __init__(
        self,
        central: Vector,
        version: int,
        *,
        capacity: int = 0,
        basis: Callable[[], Basis] | None = None,
        flows: ClientVectors | None = None,
        lengths: Lengths | None = None,
        total: Vector | None = None,
    ) -> None:
        """`total` is F, for a basis that has to have it."""
        self._total = total
        self._central, self._version, self._flows = central, version, flows
        self._lengths = lengths or Lengths()
        self._make = basis or partial(Basis, len(central), central.dtype, capacity=capacity)
        self._basis: Basis | None = None
        self._held: Sequence[Update] = ()
        """Those whose vectors nobody has looked at."""
        self.clients: dict[str, Update] = {}
        self._flow_squares: list[float] = []
        self.place: Callable[[], Vector | None] = _nowhere
        """An update's vector that may be written over, by who needs none of them any more after that."""

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def basis(self) -> Basis:
        """The vectors that are there; raises if one that was held cannot be used."""
        if self._basis is None:
            self._basis = self._make()
        if self._held:
            held, self._held = self._held, ()
            self._take_in(self._basis, held)
        return self._basis

    @property
    def untouched(self) -> bool:
        """Whether nobody has asked for the basis, so that a round may do without."""
        return self._basis is None

    def add(self, update: Update) -> None:
        """Take in one update."""
        if update.client in self.clients:
            raise DuplicateClientError(f"client {update.client!r} already has an update in this round")
        basis, square = self.basis, self._checked(update)
        self._append(basis, update)
        self.clients[update.client] = update
        self._flow_squares.append(square)

    def hold(self, updates: Sequence[Update]) -> None:
        """Take in updates that are short, all at once when the basis is asked for.

        Vectors with bad numbers raise then; whatever else cannot be used raises here, as it does in `add`.
        """
        new = {update.client: update for update in updates}
        if len(self) or len(new) < len(updates):
            for update in updates:
                self.add(update)
            return
        self._flow_squares = [self._checked(update) for update in updates]
        self.clients, self._held = new, updates

    def _checked(self, update: Update) -> float:
        """Squared length of the flow that its client has; raises if scalars, shapes or the flow are bad."""
        update.check()
        _check_vectors(update, self._central)
        try:
            return self._flow_of(update.client)
        except NonFiniteError as error:
            raise _blamed(update, error) from error

    def _take_in(self, basis: Basis, updates: Sequence[Update]) -> None:
        try:
            basis.extend([(u.end, u.start, self._older(u)) for u in updates], self._total)
            self._total = None
        except NonFiniteError:
            for update in updates:  # which one?
                self._append(basis, update)

    def _append(self, basis: Basis, update: Update) -> None:
        try:
            if self._total is not None:
                basis.set_total(self._total)
                self._total = None
            basis.append(update.end, update.start, older=self._older(update))
        except NonFiniteError as error:
            raise _blamed(update, error) from error

    def _older(self, update: Update) -> tuple[int, Vector] | None:
        return None if update.version == self._version else (update.version, self._central)

    def _flow_of(self, client: str) -> float:
        """Squared length of the flow that the client has; raises if what is stored was damaged."""
        return 0.0 if self._flows is None else self._lengths.square(self._flows, client)

    @property
    def versions(self) -> list[int | None]:
        """The older version each client started from, or None for the current one."""
        return [None if u.version == self._version else u.version for u in self.clients.values()]

    def staleness(self) -> list[int]:
        """How many versions behind each client started."""
        return [self._version - u.version for u in self.clients.values()]

    def flows(self) -> list[Vector | None]:
        """The clients' flows at the window's start, in order of arrival."""
        return [None if self._flows is None else self._flows.get(client) for client in self.clients]

    def flow_squares(self) -> list[float]:
        """Squared lengths of the clients' flows at the window's start, in order of arrival."""
        return self._flow_squares.copy()

    def weights(self) -> list[float]:
        """w_i of the clients, in order of arrival."""
        return [u.weight for u in self.clients.values()]

    def times(self) -> list[float]:
        """T_i of the clients, in order of arrival."""
        return [u.time for u in self.clients.values()]

    def curvatures(self) -> list[float]:
        """h_i of the clients, in order of arrival."""
        return [u.curvature for u in self.clients.values()]

    def shares(self) -> Vector:
        """The weights, normalised over this round's clients."""
        if not self.clients:
            raise NoUpdatesError("no updates to aggregate; a round needs at least one")
        weights = np.asarray(self.weights())
        return np.asarray(weights / weights.sum())

    def moves(self) -> Iterator[tuple[str, Update, Vector]]:
        """Each client with its displacement as it counts in this round, to read only."""
        for (client, update), slot in zip(self.clients.items(), self.basis.move_slots, strict=True):
            yield client, update, self.basis.row(slot)

    def mix(self, moves: Vector, starts: Vector | None = None, *, last: bool = False) -> Vector:
        """Sum of displacements and of start offsets from the centre, with the given factors.

        `last` if nothing else is asked of the updates: it may then take the place of one.
        """
        coefficients = np.zeros(self.basis.slots)
        coefficients[self.basis.move_slots] = moves
        if starts is not None:
            for version, factor in zip(self.versions, starts, strict=True):
                if version is not None:
                    coefficients[self.basis.offset_slot(version)] += factor
        return self.basis.combine(coefficients, out=self.place() if last else None)


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


def _nowhere() -> None:
    """No update's memory is free."""


def _blamed(update: Update, error: NonFiniteError) -> NonFiniteError:
    return NonFiniteError(f"update of client {update.client!r}: {error}")


def _check_vectors(update: Update, central: Vector) -> None:
    for what, vector in (("end state", update.end), ("start state", update.start)):
        if vector.shape != central.shape or vector.dtype != central.dtype:
            raise LayoutError(
                f"{what} of client {update.client!r} is {vector.dtype}{list(vector.shape)}, the model is "
                f"{central.dtype}{list(central.shape)}; all peers must build the same model"
            )
