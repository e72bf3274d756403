"""Rounds with worker processes, without training and with large models: against Flower as it is deployed."""

from benchmarks.rivals.flower_deployed import flower_rounds
from benchmarks.rivals.turns import against


def run(quick: bool) -> None:
    against("flower", "flwr", flower_rounds, quick)
