"""From sections of the configuration to the plain values that the core takes."""

from typing import Any

from fedecado.common.sections import AlgorithmSection, RoundsSection, RunSection, SolverSection
from fedecado.server.algorithms import Algorithm, Options, make_algorithm
from fedecado.server.rounds import Rules, Target


def rules(rounds: RoundsSection, seed: int) -> Rules:
    """The rules of a run's rounds."""
    return Rules(
        mode=rounds.mode,
        active=rounds.active,
        min_clients=rounds.min_clients,
        min_updates=rounds.min_updates,
        target_updates=rounds.target_updates,
        deadline=rounds.deadline,
        lease=rounds.lease,
        retry=rounds.retry,
        max_staleness=rounds.max_staleness,
        max_rounds=rounds.max_rounds,
        target=None if rounds.target_metric is None else Target.parse(rounds.target_metric),
        rest_tolerance=rounds.rest_tolerance,
        seed=seed,
    )


def algorithm(run: RunSection, knobs: AlgorithmSection, solver: SolverSection) -> Algorithm[Any]:
    """The run's algorithm with its knobs."""
    return make_algorithm(
        run.algorithm,
        solver=Options(**solver.model_dump()),
        mu=knobs.mu,
        server_rate=knobs.server_rate,
    )
