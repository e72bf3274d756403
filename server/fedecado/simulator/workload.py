"""What the simulated clients work on."""

from typing import Protocol

from fedecado.common.layout import Layout, Vector
from fedecado.server.federation import Offer, Result
from fedecado.simulator.fleet import Profile


class Workload(Protocol):
    """A model and the clients' data."""

    layout: Layout
    samples: list[int]
    """|D_i| of each client."""

    def initial(self) -> Vector:
        """The state to start from."""

    def train(self, client: int, offer: Offer, profile: Profile) -> Result:
        """One window of a client; equal arguments give equal results."""

    def evaluate(self, state: Vector) -> dict[str, float]:
        """Measures of a central state."""
