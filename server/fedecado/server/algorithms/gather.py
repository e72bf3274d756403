"""The updates of a round, collected as they arrive."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from fedecado.common.errors import DuplicateClientError, LayoutError, NonFiniteError, NoUpdatesError
from fedecado.common.layout import Vector
from fedecado.server.algorithms.updates import Update
from fedecado.server.algorithms.vectors import ClientVectors, Lengths
from fedecado.server.numerics.basis import Basis


class Gather:
    """The updates of one round, taken in one by one.

    `add` does the work that can be done before the round closes (checks, and what the basis measures), and
    raises without a trace when an update cannot be used.
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
