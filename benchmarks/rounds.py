"""A FedECADO round on random vectors, cut at the points that are timed."""

from dataclasses import replace

import numpy as np

from fedecado.common.layout import Vector
from fedecado.server.algorithms import Aggregated, Gather, MemoryVectors, Options, Update
from fedecado.server.algorithms.fedecado import FedEcado, FedEcadoState


class Round:
    """The same updates again and again, on a state that moves on as in a run.

    Some absent client has a flow, as in most runs; without one the sum of the flows is easier to keep.
    """

    def __init__(
        self, a: int, d: int, options: Options | None = None, level: int = 0, *, alone: bool = False
    ) -> None:
        draw = np.random.default_rng(0)
        self.a, self._level = a, level
        self.algorithm = FedEcado(options)
        self.state: FedEcadoState = self.algorithm.init(
            draw.standard_normal(d, dtype=np.float32), MemoryVectors()
        )
        if not alone:
            flow = draw.standard_normal(d, dtype=np.float32)
            self.state.flows.put("absent", flow)
            self.state = replace(self.state, F=flow.astype(np.float64))
        self.ends: Vector = draw.standard_normal((a, d), dtype=np.float32)
        self.ends *= np.float32(0.01)
        self.ends += self.state.central
        self._times = draw.uniform(0.05, 0.5, a)
        self._gathered: Gather | None = None
        self._aggregated: Aggregated[FedEcadoState] | None = None

    def start(self, updates: int) -> None:
        """Finish the round before, and gather all updates of the next one but the last few."""
        if self._aggregated is not None:
            self.finish()
        self.state = replace(self.state, level=self._level)
        self._gathered = self.algorithm.gather(self.state, capacity=self.a)
        self.add(0, updates)

    def add(self, first: int, last: int) -> None:
        """Take in the updates from `first` to before `last`."""
        assert self._gathered is not None
        for i in range(first, last):
            update = Update(
                f"c{i}", self.state.version, self.state.central, self.ends[i], float(self._times[i])
            )
            self._gathered.add(update)

    def aggregate(self) -> None:
        """Make the new centre."""
        assert self._gathered is not None
        self._aggregated = self.algorithm.aggregate(self.state, self._gathered, 10 * self.a)

    def finish(self) -> None:
        """Rewrite the flows."""
        assert self._aggregated is not None
        self.state = self._aggregated.finish()
        self._aggregated = None

    def last_update(self) -> None:
        """From the arrival of the last update to the new centre."""
        self.add(self.a - 1, self.a)
        self.aggregate()

    def everything(self) -> None:
        """All central work of a round."""
        self.start(self.a)
        self.aggregate()
        self.finish()
