"""From sections of the configuration to the plain values that the core takes."""

from typing import Any, Protocol

from fedecado.common.layout import Layout
from fedecado.common.sections import (
    AlgorithmSection,
    RobustSection,
    RoundsSection,
    RunSection,
    SolverSection,
    StoreSection,
    TrainingSection,
)
from fedecado.server.algorithms import Algorithm, Options, Robust, make_algorithm
from fedecado.server.rounds import Rules, Target
from fedecado.server.store import Recipe, Retention


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


def retention(store: StoreSection) -> Retention:
    """What stays in a run's folder."""
    return Retention(
        last=store.keep_last,
        every=store.keep_every,
        most=store.keep_most,
        inputs=store.record,
        inputs_bytes=int(store.record_gigabytes * 1e9),
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
    @property
    def robust(self) -> RobustSection: ...


def algorithm(settings: Configured) -> Algorithm[Any]:
    """The run's algorithm with its knobs."""
    return make_algorithm(settings.run.algorithm, **_knobs(settings))


def recipe(settings: Configured, layout: Layout) -> Recipe:
    """How a run is computed, for its store."""
    return Recipe(
        layout, settings.run.algorithm, rules(settings.rounds, settings.run.seed), **_knobs(settings)
    )


def _knobs(settings: Configured) -> dict[str, Any]:
    return {
        "solver": Options(**settings.solver.model_dump()) if settings.run.algorithm == "fedecado" else None,
        "mu": settings.algorithm.mu,
        "server_rate": settings.algorithm.server_rate,
        "robust": Robust(**settings.robust.model_dump()),
    }
