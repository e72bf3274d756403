"""From sections of the configuration to the plain values that the core takes."""

from typing import Any, Protocol

from fedecado.common.layout import Layout
from fedecado.common.sections import (
    AlgorithmSection,
    RoundsSection,
    RunSection,
    SolverSection,
    TrainingSection,
)
from fedecado.server.algorithms import Algorithm, Options, make_algorithm
from fedecado.server.rounds import Rules, Target
from fedecado.server.store import Recipe


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


def one_tolerance(solver: SolverSection, training: TrainingSection) -> SolverSection:
    """The solver with the clients' tolerance, where they have one: the same errors on both sides."""
    if training.tolerance is None:
        return solver
    return solver.model_copy(update={"tolerance": training.tolerance})


class Configured(Protocol):
    """Settings that describe a run."""

    @property
    def run(self) -> RunSection: ...
    @property
    def rounds(self) -> RoundsSection: ...
    @property
    def solver(self) -> SolverSection: ...
    @property
    def algorithm(self) -> AlgorithmSection: ...


def recipe(settings: Configured, layout: Layout) -> Recipe:
    """How a run is computed, for its store."""
    return Recipe(
        layout=layout,
        algorithm=settings.run.algorithm,
        rules=rules(settings.rounds, settings.run.seed),
        solver=Options(**settings.solver.model_dump()) if settings.run.algorithm == "fedecado" else None,
        mu=settings.algorithm.mu,
        server_rate=settings.algorithm.server_rate,
    )
