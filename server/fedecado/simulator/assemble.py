"""From settings to a simulation that can run."""

from collections.abc import Callable
from dataclasses import replace

from fedecado.common.errors import ConfigError
from fedecado.common.sections import (
    QUADRATICS,
    AlgorithmSection,
    FleetSection,
    PrivacySection,
    RobustSection,
    RoundsSection,
    RunSection,
    SimulateSection,
    SolverSection,
    TaskSection,
    TrainingSection,
    UploadSection,
)
from fedecado.common.settings import Settings
from fedecado.server import configure
from fedecado.server.federation import Federation
from fedecado.server.rounds import Engine
from fedecado.simulator.crew import Crew
from fedecado.simulator.fleet import Fleet, draw_fleet
from fedecado.simulator.history import RoundRecord
from fedecado.simulator.quadratics import Quadratics
from fedecado.simulator.simulation import Simulation
from fedecado.simulator.trace import Trace
from fedecado.simulator.uplink import Uplink
from fedecado.simulator.workload import Workload


class SimulateSettings(Settings):
    """What a simulation reads."""

    run: RunSection = RunSection()
    task: TaskSection = TaskSection()
    rounds: RoundsSection = RoundsSection()
    solver: SolverSection = SolverSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    robust: RobustSection = RobustSection()
    training: TrainingSection = TrainingSection()
    privacy: PrivacySection = PrivacySection()
    upload: UploadSection = UploadSection()
    fleet: FleetSection = FleetSection()
    simulate: SimulateSection = SimulateSection()


def make_simulation(
    settings: SimulateSettings,
    workload: Workload,
    *,
    crew: Crew | None = None,
    watch: Callable[[RoundRecord], None] | None = None,
) -> Simulation:
    """A run of these settings on a workload that was made from them."""
    rules = configure.rules(settings.rounds, settings.run.seed)
    # All clients are here from the start, so the first round does not begin with the first of them.
    engine = Engine(replace(rules, min_clients=settings.fleet.clients))
    solver = configure.one_tolerance(settings.solver, settings.training)
    algorithm = configure.algorithm(settings.model_copy(update={"solver": solver}))
    replay = settings.simulate.replay
    simulation = Simulation(
        Federation(engine, algorithm, workload.layout, workload.initial()),
        workload,
        make_fleet(settings),
        evaluate_every=settings.rounds.evaluate_every,
        replay=None if replay is None else Trace.load(replay),
        watch=watch,
        crew=crew,
    )
    simulation.uplink = Uplink(settings.upload.format, workload.layout)
    return simulation


def make_workload(settings: SimulateSettings) -> Workload:
    """The clients' data and model."""
    clients, seed = settings.fleet.clients, settings.run.seed
    if settings.task.factory == QUADRATICS:
        unknown = settings.task.arguments.keys() - {"size", "spread"}
        if unknown:
            raise ConfigError(
                f"quadratics take the arguments size and spread, not {', '.join(sorted(unknown))}"
            )
        return Quadratics(clients, seed=seed, **settings.task.arguments)
    try:
        from fedecado.client.privacy import Noise
        from fedecado.client.window import Plan
        from fedecado.simulator.learning import Learning
    except ModuleNotFoundError as error:
        raise ConfigError(f"this task needs {error.name}; install fedecado[client]") from error
    training = settings.training.model_dump(exclude={"device", "sensitivity_every", "probes"})
    clip, multiplier = settings.privacy.clip, settings.privacy.noise_multiplier
    return Learning(
        settings.task.factory,
        settings.task.arguments,
        clients,
        plan=Plan(seed=seed, **training),
        # Curvature costs as much as several windows, and only the circuit asks for it.
        probes=settings.training.probes if settings.run.algorithm == "fedecado" else 0,
        noise=None if clip is None or multiplier is None else Noise(clip, multiplier),
    )


def make_fleet(settings: SimulateSettings) -> Fleet:
    """The clients' own learning rates, epochs and speeds."""
    options, fleet, training = settings.simulate, settings.fleet, settings.training
    if settings.task.factory == QUADRATICS:
        usual_rates, usual_epochs = [0.001, 0.01], [5, 30]
    else:
        usual_rates, usual_epochs = [training.rate] * 2, [training.epochs] * 2
    return draw_fleet(
        fleet.clients,
        fleet.rates or usual_rates,
        fleet.epochs or usual_epochs,
        speed_spread=options.speed_spread,
        dropout=options.dropout,
        seed=settings.run.seed,
    )
