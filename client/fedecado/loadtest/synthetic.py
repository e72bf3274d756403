"""The work of simulated workers: one step down a quadratic, so that any number of rounds stays finite.

    f_i(x) = |x - c_i|^2 / 2,    x <- x - eta (x - c_i + mu (x - x_start) - b),    T_i = eta / w_i

A few passes over the vector: the generator's time goes to the protocol. All c_i are multiples of one vector.
"""

import math
from typing import Final, final

import numpy as np

from fedecado.client.work import Failed, Outcome, Profile, Trained, Training, Work
from fedecado.common.layout import Layout, Vector

_ETA: Final = 0.1


@final
class SyntheticTask:
    """One model for all workers of a process."""

    def __init__(self, parameters: int, seed: int) -> None:
        self.layout = Layout.flat(parameters)
        self._direction: Vector = np.random.default_rng(seed).standard_normal(parameters, np.float32)
        self._initial: Vector = np.zeros(parameters, np.float32)
        self._other = Layout.flat(parameters + 1)

    def profile(self, samples: int, *, wrong_model: bool = False) -> Profile:
        """What a worker says about itself; the wrong model is another than everybody's."""
        layout = self._other if wrong_model else self.layout
        initial = np.zeros(layout.size, np.float32) if wrong_model else self._initial
        return Profile(layout, initial, samples, device="simulated", curvature=1.0)

    def train(self, work: Work, where: float, seconds: float, *, nan: bool = False) -> Outcome:
        """The outcome of `work` for the worker whose c_i is `where` times the common vector.

        Done in place where it can be: `work` and its vectors belong to this worker alone, but short ones are
        part of their message.
        """
        if not isinstance(work, Training):
            return Failed("NotImplementedError", "simulated workers do not evaluate", "")
        eta = np.float32(_ETA)
        # mu pulls back to where x starts, so it does nothing in the only step.
        x = _times(work.state, 1 - eta)
        x += (eta * np.float32(where)) * self._direction
        if work.drift is not None:
            x[: work.drift.size] += _times(work.drift, eta * np.float32(1 + work.header.drift_after))
        if nan:
            x[0] = math.nan
        weight = work.header.weight
        return Trained(x, _ETA / weight, weight, 1, 1, None, None, None, seconds)


def _times(vector: Vector, factor: np.float32) -> Vector:
    """The vector times a factor, where it was if that may be written to."""
    return np.multiply(vector, factor, out=vector if vector.flags.writeable else None)
