"""What is so in a run, for its parts to see."""

from typing import Final

from fedecado.common.layout import Layout
from fedecado.server.coordinator.journal import Journal
from fedecado.server.coordinator.members import Members
from fedecado.server.federation import Federation
from fedecado.server.observe.observer import NoObserver, Observer
from fedecado.server.observe.traces import NoTraces, Traces
from fedecado.server.rounds import Engine

LIGHT_BYTES: Final = 1 << 20
"""Vectors of up to this size together are worked on in the loop: handing them to a thread costs more."""


class Facts:
    """All that a run's parts know of it.

    They look here each time, for a run puts others in place: when its model is there, when it goes on from a
    store, when somebody begins to watch.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.federation: Federation | None = None
        self.layout: Layout | None = None
        self.members, self.journal = Members(), Journal()
        self.observer: Observer = NoObserver()
        self.traces: Traces = NoTraces()

    def is_light(self, vectors: int) -> bool:
        """Whether so many vectors are worked on in the loop."""
        return self.layout is None or vectors * self.layout.nbytes <= LIGHT_BYTES
