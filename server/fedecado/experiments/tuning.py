"""Fair tuning: every algorithm tries as many points of a stated grid, scored on a validation split."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedecado.common.errors import ConfigError
from fedecado.experiments.cells import Outcome
from fedecado.experiments.plan import TUNED, Cell, Experiment, Values
from fedecado.experiments.statistics import LOWER_IS_BETTER, final

SEED = 1000
"""Of the tuning runs; the runs that are compared have other seeds, so nobody is tuned to their draws."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What tuning found for one algorithm in one setting."""

    setting: str
    algorithm: str
    point: Values
    score: float
    tried: Sequence[tuple[Values, float]]


def check_budgets(experiment: Experiment) -> int:
    """How many points each algorithm tries; raises unless they all try as many."""
    sizes = {name: len(experiment.grids[name]) for name in experiment.algorithms if name in experiment.grids}
    if not sizes:
        raise ConfigError("nothing to tune: the experiment has no [tune.NAME] for any of its algorithms")
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise ConfigError(f"tuning must be fair, but the grids have different sizes: {listed}")
    return next(iter(sizes.values()))


def tuning_cells(experiment: Experiment, given: Values) -> list[tuple[Cell, Values]]:
    """A run per setting, algorithm and point, on the validation split."""
    check_budgets(experiment)
    found = []
    for setting, own in experiment.settings.items():
        for algorithm in (name for name in experiment.algorithms if name in experiment.grids):
            for number, point in enumerate(experiment.grids[algorithm]):
                values = {
                    **experiment.base,
                    **own,
                    **experiment.algorithms[algorithm],
                    **given,
                    **point,
                    "run.seed": SEED,
                    "task.arguments.scored": "validation",
                }
                found.append((Cell(setting, f"{algorithm}-{number}", SEED, values), point))
    return found


def choose(
    experiment: Experiment, given: Values, metric: str, run: Callable[[list[Cell]], list[Outcome]]
) -> list[Choice]:
    """Run the grid and take each algorithm's best point; a run that diverged comes last."""
    planned = tuning_cells(experiment, given)
    scores = {
        (o.cell.setting, o.cell.algorithm): final(o, metric) for o in run([cell for cell, _ in planned])
    }
    found: dict[tuple[str, str], list[tuple[Values, float]]] = {}
    for cell, point in planned:
        algorithm = cell.algorithm.rpartition("-")[0]
        score = scores.get((cell.setting, cell.algorithm), math.nan)
        found.setdefault((cell.setting, algorithm), []).append((point, score))
    better = -1.0 if metric in LOWER_IS_BETTER else 1.0
    choices = []
    for (setting, algorithm), tried in found.items():
        ranked = [better * score if math.isfinite(score) else -math.inf for _, score in tried]
        best = int(np.argmax(ranked))
        choices.append(Choice(setting, algorithm, *tried[best], tried))
    return choices


def tuned_cells(experiment: Experiment, choices: Sequence[Choice], given: Values) -> list[Cell]:
    """The runs to compare: baselines at their tuned values, FedECADO at its defaults and tuned."""
    points: Mapping[tuple[str, str], Values] = {(c.setting, c.algorithm): c.point for c in choices}
    found = []
    for cell in experiment.cells(given):
        point = points.get((cell.setting, cell.algorithm))
        if point is None or experiment.algorithms[cell.algorithm]["run.algorithm"] == "fedecado":
            found.append(cell)
        if point is not None:
            # What the user gave stays below what was tuned: the grid was searched with it.
            found.append(replace(cell, algorithm=cell.algorithm + TUNED, values={**cell.values, **point}))
    return found
