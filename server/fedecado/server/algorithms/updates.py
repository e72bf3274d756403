"""What a client reports about one window, and which of it an aggregation can use."""

from fedecado.common.errors import NonFiniteError, WindowError
from fedecado.common.layout import Vector
from fedecado.common.records import record

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
