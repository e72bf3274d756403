"""Numbers of a comparison: curves with their spread, final scores, rounds to a target, paired tests."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedecado.common.target import Target
from fedecado.experiments.cells import Outcome
from fedecado.simulator.history import RoundRecord

Floats = npt.NDArray[np.float64]

LAST = 3
"""A final score is the mean of so many last evaluations: single ones jump with the sampled clients."""
POINTS = 200
LOWER_IS_BETTER = ("loss", "distance")

Axis = Callable[[Outcome, int], float]
"""(outcome, index of a round) -> where it stands on an axis."""
AXES: dict[str, Axis] = {
    "round": lambda outcome, k: float(outcome.rounds[k].round),
    "virtual seconds": lambda outcome, k: outcome.rounds[k].clock,
    "wall seconds": lambda outcome, k: outcome.walls[k],
    "megabytes": lambda outcome, k: outcome.rounds[k].traffic / 1e6,
}


@dataclass(frozen=True, slots=True)
class Curve:
    """Mean and standard deviation over seeds, at common places."""

    x: Floats
    mean: Floats
    spread: Floats


@dataclass(frozen=True, slots=True)
class Paired:
    """How far one algorithm is from another on the same seeds; p by a paired t-test."""

    difference: float
    p: float | None


def measured(outcome: Outcome, metric: str) -> list[tuple[int, float]]:
    """Index of the round and value, where the metric was measured."""
    return [(k, r.metrics[metric]) for k, r in enumerate(outcome.rounds) if metric in r.metrics]


def final(outcome: Outcome, metric: str) -> float:
    """The mean of the last evaluations; NaN for a run that diverged or measured nothing."""
    values = [value for _, value in measured(outcome, metric)][-LAST:]
    return math.nan if outcome.diverged or not values else float(np.mean(values))


def reached(outcome: Outcome, target: Target) -> RoundRecord | None:
    """The first round whose evaluation meets the target."""
    return next((r for r in outcome.rounds if target.reached(r.metrics)), None)


def rounds_to_target(outcomes: Sequence[Outcome], target: Target) -> float | None:
    """The median over seeds; a seed that never gets there counts as infinitely many."""
    return _median_round([reached(outcome, target) for outcome in outcomes])


def rounds_to_match(outcomes: Sequence[Outcome], others: Sequence[Outcome], metric: str) -> float | None:
    """Rounds after which a run first scores what another ends with on the same seed; the median over seeds.

    Unlike a fixed target it is neither met at once nor out of reach, whatever the setting.
    """
    ends = {other.cell.seed: final(other, metric) for other in others}
    rising = metric not in LOWER_IS_BETTER
    return _median_round(
        [
            reached(outcome, Target(metric, ends[outcome.cell.seed], rising))
            for outcome in outcomes
            if math.isfinite(ends.get(outcome.cell.seed, math.nan))
        ]
    )


def _median_round(found: Sequence[RoundRecord | None]) -> float | None:
    """None counts as infinitely many."""
    middle = float(np.median([math.inf if r is None else r.round for r in found])) if found else math.inf
    return middle if math.isfinite(middle) else None


def curve(outcomes: Sequence[Outcome], metric: str, axis: Axis) -> Curve | None:
    """Interpolated to where all seeds have values."""
    lines = []
    for outcome in outcomes:
        points = measured(outcome, metric)
        if points:
            lines.append(
                (np.asarray([axis(outcome, k) for k, _ in points]), np.asarray([v for _, v in points]))
            )
    if not lines:
        return None
    low, high = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    if high < low:
        return None
    x = np.linspace(low, high, min(POINTS, max(len(line[0]) for line in lines)))
    values = np.stack([np.interp(x, *line) for line in lines])
    return Curve(x, values.mean(0), values.std(0))


def paired(left: Sequence[float], right: Sequence[float]) -> Paired | None:
    """left - right, seed by seed; None unless both have the same seeds, all finite."""
    a, b = np.asarray(left, np.float64), np.asarray(right, np.float64)
    if a.shape != b.shape or not len(a) or not np.isfinite([a, b]).all():
        return None
    gaps = a - b
    if len(gaps) < 2 or np.ptp(gaps) == 0:
        return Paired(float(gaps.mean()), None)
    from scipy import stats

    return Paired(float(gaps.mean()), float(stats.ttest_1samp(gaps, 0.0).pvalue))
