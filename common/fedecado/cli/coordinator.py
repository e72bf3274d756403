"""Coordinate a run: enrol workers, hand out tasks, aggregate what they send.

Starts without a model of its own: it takes one from --initial, or asks the first worker for its own.
The last and the best model are written to the run's folder, and so is all it takes to go on: started again
under the same name after any end, a crash included, it continues the run. The process ends with the run;
Ctrl-C or SIGTERM ends it in good order before that. Beyond this machine it listens with TLS only
(`fedecado certs`), unless --network-insecure is said. When it listens it says so in one line on
standard output.

Examples:
  fedecado coordinator --rounds 100 --active 10 --rounds-deadline 60
  fedecado coordinator --rounds-min-clients 5 --rounds-target-metric 'accuracy>=0.95'
  fedecado coordinator --rounds-mode stream --active 20 --rounds-target-updates 10
"""

import argparse
import asyncio
import datetime
from functools import partial
from typing import TYPE_CHECKING

from fedecado.common.allocator import keep_chunk_buffers
from fedecado.common.errors import ConfigError
from fedecado.common.loading import loading
from fedecado.common.logs import identify, setup_logging
from fedecado.common.sections import (
    AlgorithmSection,
    CoordinatorSection,
    EnrolmentSection,
    LimitsSection,
    LogSection,
    NetworkSection,
    ObserveSection,
    RobustSection,
    RoundsSection,
    RunSection,
    SolverSection,
    StoreSection,
    TraceSection,
)
from fedecado.common.settings import Loaded, Settings
from fedecado.common.timeouts import Timeouts
from fedecado.common.tls import require_safe_bind

if TYPE_CHECKING:
    from fedecado.server.coordinator.admin_token import AdminToken
    from fedecado.server.coordinator.enrolment import Enrolment
    from fedecado.server.observe.writers import Ledgers


class CoordinatorSettings(Settings):
    """What a coordinator reads."""

    run: RunSection = RunSection()
    coordinator: CoordinatorSection = CoordinatorSection()
    store: StoreSection = StoreSection()
    rounds: RoundsSection = RoundsSection()
    solver: SolverSection = SolverSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    robust: RobustSection = RobustSection()
    network: NetworkSection = NetworkSection()
    enrolment: EnrolmentSection = EnrolmentSection()
    limits: LimitsSection = LimitsSection()
    observe: ObserveSection = ObserveSection()
    trace: TraceSection = TraceSection()
    log: LogSection = LogSection()


SETTINGS = CoordinatorSettings


def run(loaded: Loaded[CoordinatorSettings], _: argparse.Namespace) -> int:
    settings = loaded.settings
    keep_chunk_buffers()
    setup_logging(settings.log.level, json=settings.log.format == "json")
    identify(run=settings.run.name)
    try:
        with loading():
            import uvloop

            from fedecado.server import configure
            from fedecado.server.coordinator.post import Suggestions
            from fedecado.server.coordinator.process import Coordinator, Plan
            from fedecado.server.coordinator.quotas import Limits
            from fedecado.server.store import set_aside
    except ModuleNotFoundError as error:
        raise ConfigError(f"a coordinator needs {error.name}; install fedecado[server]") from error
    network, chosen = settings.network, settings.coordinator
    tls = network.tls()
    require_safe_bind(chosen.bind, tls, insecure=network.insecure)
    if chosen.snapshot is not None and not chosen.durable:
        raise ConfigError("--from-snapshot begins a run that is kept; leave --no-coordinator-durable out")
    if chosen.snapshot is not None and chosen.initial is not None:
        raise ConfigError("--from-snapshot and --initial both bring a model; give one of them")
    folder = settings.run.directory / settings.run.name
    if chosen.fresh:
        set_aside(folder)
    plan = Plan(
        name=settings.run.name,
        folder=folder,
        algorithm=settings.run.algorithm,
        bind=chosen.bind,
        initial=chosen.initial,
        snapshot=chosen.snapshot,
        evaluate_every=settings.rounds.evaluate_every,
        linger=chosen.linger,
        tls=tls,
        crl=network.tls_crl,
        enrolment=_enrolment(settings.enrolment),
        admin_token=_admin_token(network),
        suggestions=Suggestions(
            chosen.hint_rate, chosen.hint_epochs, chosen.hint_batch_size, chosen.sensitivity_every
        ),
        upload_formats=tuple(chosen.upload_formats),
        recipe=partial(configure.recipe, settings) if chosen.durable else None,
        retention=configure.retention(settings.store),
        checkpoint_seconds=settings.store.checkpoint_seconds,
        limits=Limits(**settings.limits.model_dump()),
        observe=settings.observe.bind,
        observe_public=settings.observe.public,
        ledgers=_ledgers(settings.observe),
        trace=settings.trace.to,
        health=network.health_bind,
    )

    async def main() -> int:
        coordinator = Coordinator(
            plan,
            configure.rules(settings.rounds, settings.run.seed),
            configure.algorithm(settings),
            Timeouts(settings.network.peer_loss),
        )
        return await coordinator.serve()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def _enrolment(section: EnrolmentSection) -> "Enrolment | None":
    if section.bind is None:
        return None
    from fedecado.server.coordinator.enrolment import Enrolment  # loads cryptography

    return Enrolment(section.bind, section.folder, datetime.timedelta(hours=section.hours))


def _admin_token(network: NetworkSection) -> "AdminToken | None":
    from fedecado.server.coordinator.admin_token import AdminToken

    return None if network.admin_token_file is None else AdminToken.from_file(network.admin_token_file)


def _ledgers(observe: ObserveSection) -> "Ledgers | None":
    if observe.tensorboard is None and observe.mlflow is None:
        return None
    from fedecado.server.observe.writers import Ledgers

    return Ledgers(observe.tensorboard, observe.mlflow)
