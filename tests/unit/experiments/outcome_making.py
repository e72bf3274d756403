"""Outcomes of runs that nobody ran."""

from collections.abc import Sequence

from fedecado.experiments.cells import Outcome
from fedecado.experiments.plan import Cell
from fedecado.simulator.history import RoundRecord


def outcome(
    algorithm: str,
    seed: int,
    accuracies: Sequence[float],
    *,
    setting: str = "s",
    ended: str = "all rounds are done",
    arrivals: str = "same",
) -> Outcome:
    """A run whose accuracy was measured after each round; a round takes 2 virtual and 3 real seconds."""
    rounds = [
        RoundRecord(k, 2.0 * k, 1.0, 1, 0.0, 0.0, 0.0, 0.0, {"accuracy": value}, {}, 1_000_000 * k)
        for k, value in enumerate(accuracies, 1)
    ]
    walls = [3.0 * k for k in range(1, len(rounds) + 1)]
    return Outcome(Cell(setting, algorithm, seed, {}), "d", ended, 1.0, rounds, walls, {"arrivals": arrivals})
