"""How far short windows may be extrapolated before stiff directions swing up.

Along a stiff direction clients come to rest within any window: all end at the optimum, here 0, so a
displacement is minus the centre. That is stable while the mean over-relaxation is below 2 + 4 C / a.
"""

import math

import numpy as np
import pytest

from fedecado.server.algorithms import MemoryVectors, Options, Update
from fedecado.server.algorithms.fedecado import FedEcado, FedEcadoState

ACTIVE = 10
ONE_STEP = 1e300
"""A tolerance that leaves every window one step, however far things swing."""


def swing(options: Options, *, enrolled: int, rounds: int = 60) -> tuple[float, float]:
    """How far the centre is from rest in the end, and the mean over-relaxation of the rounds.

    One client has a long window, the others very short ones.
    """
    algorithm = FedEcado(options)
    state: FedEcadoState = algorithm.init(np.ones(3), MemoryVectors())
    times = np.full(ACTIVE, 1e-3)
    times[0] = 1.0
    extrapolated = 0.0
    for _ in range(rounds):
        gathered = algorithm.gather(state, ACTIVE)
        for i, time in enumerate(times):
            gathered.add(Update(f"c{i}", state.version, state.central, np.zeros(3), float(time)))
        aggregated = algorithm.aggregate(state, gathered, enrolled)
        bound = aggregated.report.details["reach"]
        extrapolated += float(np.minimum(aggregated.report.time / times, bound).mean()) / rounds
        state = aggregated.finish()
    return float(np.abs(state.central).max()), extrapolated


@pytest.mark.parametrize("enrolled", [ACTIVE, 40, 100])
@pytest.mark.parametrize(("share", "stable"), [(0.5, True), (0.75, True), (1.3, False)])
def test_the_mean_over_relaxation_decides_whether_a_stiff_direction_is_stable(
    enrolled: int, share: float, stable: bool
) -> None:
    limit = 2 + 4 * (1 + 0.1 * (enrolled - ACTIVE)) / ACTIVE
    options = Options(
        rho=share * limit,
        reach="fixed",
        window="common",
        horizon="rms",
        inertia=0.1,
        memory=0.0,
        tolerance=ONE_STEP,
    )
    end, extrapolated = swing(options, enrolled=enrolled)
    assert extrapolated == pytest.approx(0.9 * share * limit, rel=0.1)
    assert (end < 1e-2) == stable


def test_the_defaults_are_stable_with_slow_clients_among_many_that_are_absent() -> None:
    end, extrapolated = swing(Options(tolerance=ONE_STEP), enrolled=100)
    assert end < 1e-2 and extrapolated < 2 + 4 * (1 + 0.2 * 90) / ACTIVE
    each, unbounded = swing(Options(rho=16.0, reach="curvature", tolerance=ONE_STEP), enrolled=100)
    assert each > 1e3 or math.isnan(each), "bounding each client by its own is not enough"
    assert unbounded > 6 and unbounded > extrapolated
