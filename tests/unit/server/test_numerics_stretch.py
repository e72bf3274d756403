"""The pace of the horizon: longer while clients go along with the centre, shorter when they turn back."""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from fedecado.server.algorithms import MemoryVectors, Options, Update
from fedecado.server.algorithms.fedecado import FedEcado, FedEcadoState
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.options import LEAST, MOST
from fedecado.server.numerics.stretch import FASTER, SLOWER, Answer, adapted, answered
from fedecado.server.store import states

F = np.array([1.0, -2.0, 0.5])


def basis(*moves: npt.ArrayLike, total: npt.ArrayLike | None = F) -> Basis:
    found = Basis(3, np.float64, gram=True)
    if total is not None:
        found.set_total(np.asarray(total, np.float64))
    for move in moves:
        found.append(np.asarray(move, np.float64), np.zeros(3))
    return found


def agreement(basis: Basis, versions: list[int | None]) -> float | None:
    answer = answered(basis, versions)
    return None if answer is None else answer.agreement


def test_agreement_is_the_cosine_between_the_mean_displacement_and_the_way_the_centre_went() -> None:
    moves = np.random.default_rng(0).standard_normal((4, 3))
    mean = moves.mean(0)
    expected = -(mean @ F) / np.linalg.norm(mean) / np.linalg.norm(F)
    assert agreement(basis(*moves), [None] * 4) == pytest.approx(expected, rel=1e-12)
    assert agreement(basis(-F), [None]) == pytest.approx(1.0)
    assert agreement(basis(1e6 * F, 1e-6 * F), [None] * 2) == pytest.approx(-1.0), "lengths do not count"


def test_who_started_before_the_last_step_cannot_answer_it() -> None:
    assert agreement(basis(-F, F, F), [None, 3, 4]) == pytest.approx(1 / 3), "its share of the round"
    assert agreement(basis(-F, -F, F), [None, None, 4]) == pytest.approx(2 / 3)
    assert agreement(basis(-F, F), [3, 3]) is None


@pytest.mark.parametrize(
    "nothing",
    [
        basis(),
        basis([0, 0, 0]),
        basis([1, 2, 3], [-1, -2, -3]),
        basis(F, total=[0, 0, 0]),
        basis(F, total=None),
    ],
    ids=["no clients", "no displacement", "none on average", "no flows", "no sum of flows"],
)
def test_without_a_direction_nothing_is_said_and_the_pace_stays(nothing: Basis) -> None:
    assert agreement(nothing, [None] * len(nothing.move_slots)) is None
    assert adapted(1.7, None) == 1.7


def test_the_pace_grows_slowly_shrinks_faster_and_stays_within_its_bounds() -> None:
    assert adapted(1.0, Answer(0.5)) == pytest.approx(math.exp(0.5 * FASTER))
    assert adapted(1.0, Answer(-0.5)) == pytest.approx(math.exp(-0.5 * SLOWER))
    assert SLOWER > FASTER
    assert adapted(MOST, Answer(1.0)) == MOST and adapted(LEAST, Answer(-1.0)) == LEAST


def test_the_fewer_answer_the_less_it_matters_which_way_and_noise_does_not_shorten() -> None:
    assert adapted(1.0, Answer(0.5, 0.2)) == pytest.approx(math.exp(0.1 * FASTER))
    assert adapted(1.0, Answer(-0.5, 0.2)) == pytest.approx(math.exp(-0.1 * (0.8 * FASTER + 0.2 * SLOWER)))
    both_ways = [adapted(adapted(1.0, Answer(0.5, share)), Answer(-0.5, share)) for share in (1.0, 0.5, 0.1)]
    assert both_ways == sorted(both_ways) and 0.99 < both_ways[-1] < 1


def descended(curvature: float, rounds: int = 60) -> tuple[float, list[float]]:
    """Two clients with one loss, curvature / 2 |x|^2, windows of 0.1: where it ends, every pace."""
    algorithm, paces = FedEcado(Options()), list[float]()
    state: FedEcadoState = algorithm.init(np.ones(3), MemoryVectors())
    for _ in range(rounds):
        gathered = algorithm.gather(state)
        for client in ("a", "b"):
            drift, x = algorithm.assignment(state, client, 1.0).drift, state.central
            for _ in range(10):
                x = x - 0.01 * (curvature * x - (0.0 if drift is None else drift))
            gathered.add(Update(client, state.version, state.central, x, 0.1))
        state = algorithm.aggregate(state, gathered, 2).finish()
        paces.append(state.pace)
    return float(np.abs(state.central).max()), paces


def test_a_flat_loss_is_gone_down_in_longer_steps_and_a_steep_one_is_not_overshot() -> None:
    """Windows of 0.1 are short against a time constant of 20 and long against one of 0.05."""
    assert max(descended(0.05)[1]) > 4
    fixed = 1.0 * (1 - 0.05 * 0.1) ** 60
    assert descended(0.05)[0] < 0.5 * fixed
    steep, paces = descended(20.0)
    assert steep < 1e-3 and max(paces) < 2


def test_other_horizons_are_not_stretched() -> None:
    algorithm = FedEcado(Options(horizon="rms"))
    state = replace(algorithm.init(np.zeros(3), MemoryVectors()), pace=3.0)  # begun with another horizon
    for end in (-F, -2 * F):
        gathered = algorithm.gather(state)
        gathered.add(Update("a", state.version, state.central, end, 0.1))
        aggregated = algorithm.aggregate(state, gathered, 1)
        assert aggregated.report.time == pytest.approx(0.1)
        state = aggregated.finish()
    assert state.pace == 1.0


def test_pace_and_window_are_stored_with_the_state() -> None:
    state = FedEcadoState(np.ones(3), MemoryVectors(), F, level=2, pace=1.75, window=0.3, version=4, time=0.5)
    scalars, vectors = states.dump(state)
    again = states.load(scalars, vectors, state.central, state.flows)
    assert isinstance(again, FedEcadoState)
    assert (again.pace, again.window, again.level, again.version, again.time) == (1.75, 0.3, 2, 4, 0.5)
    del scalars["pace"], scalars["window"]
    scalars["stretch"] = 3.0
    before = states.load(scalars, vectors, state.central, state.flows)
    assert isinstance(before, FedEcadoState) and (before.pace, before.window) == (1.0, 0.0), (
        "of a run from before there were these"
    )
