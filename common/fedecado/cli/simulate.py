"""Run a federation in one process on a virtual clock.

It uses the coordinator's own engine and algorithms, and the workers' own training, without a network.
Clients differ in data, learning rate, epochs and speed; they may drop out and come back. The run's
folder gets its results and a plot. The same settings and seed give the same run to the bit.

Examples:
  fedecado simulate                                        digits, 10 clients, FedECADO
  fedecado simulate --algorithm fedavg --clients 100 --active 10 --rounds 50
  fedecado simulate --rates 0.01,0.1 --epochs 1,10 --rounds-mode stream --speed-spread 1
  fedecado simulate --record arrivals.jsonl && fedecado simulate --replay arrivals.jsonl --algorithm fedbuff
The numerical proof, against an optimum that is known exactly:
  fedecado simulate --task quadratics --clients 20 --active 4 --rounds 1500 --json - | jq .distance
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from fedecado.cli.progress import RoundProgress
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
)
from fedecado.common.settings import Loaded, Settings
from fedecado.server import configure
from fedecado.server.federation import Federation
from fedecado.server.rounds import Engine
from fedecado.simulator import Fleet, History, Simulation, Trace, Workload, draw_fleet
from fedecado.simulator.quadratics import Quadratics


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
    fleet: FleetSection = FleetSection()
    simulate: SimulateSection = SimulateSection()


SETTINGS = SimulateSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON; - for standard output")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(loaded: Loaded[SimulateSettings], args: argparse.Namespace) -> int:
    settings = loaded.settings
    workload, fleet = make_workload(settings), make_fleet(settings)
    rules = configure.rules(settings.rounds, settings.run.seed)
    # All clients are here from the start, so the first round does not begin with the first of them.
    engine = Engine(replace(rules, min_clients=settings.fleet.clients))
    algorithm = configure.algorithm(settings.run, settings.algorithm, settings.solver, settings.robust)
    federation = Federation(engine, algorithm, workload.layout, workload.initial())
    options = settings.simulate
    with RoundProgress(settings.rounds.max_rounds, quiet=args.quiet) as progress:
        simulation = Simulation(
            federation,
            workload,
            fleet,
            evaluate_every=settings.rounds.evaluate_every,
            replay=None if options.replay is None else Trace.load(options.replay),
            watch=lambda record: progress.show(record.round, record.metrics),
        )
        history = simulation.run()
    history.settings = settings.model_dump(mode="json")
    if options.record is not None:
        simulation.trace.save(options.record)
    for client, error in simulation.failures.items():
        sys.stderr.write(f"{client} failed: {error}\n")
    _write(history, settings, args.json)
    return 0


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
        probes=settings.training.probes,
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


def _write(history: History, settings: SimulateSettings, json: str | None) -> None:
    """Results and plot into the run's folder, or only where the user said."""
    options, folder = settings.simulate, settings.run.directory / settings.run.name
    results, plot_file = options.results, options.plot
    if json is None:
        results, plot_file = results or folder / "results.json", plot_file or folder / "plot.png"
    elif json == "-":
        sys.stdout.write(history.to_json() + "\n")
    else:
        Path(json).write_text(history.to_json() + "\n", encoding="utf-8")
    if results is not None:
        history.save(results)
    if plot_file is not None:
        from fedecado.simulator.plot import plot

        plot({settings.run.algorithm: history}, plot_file)
    if json != "-":
        summary = ", ".join(f"{name} {value:.4g}" for name, value in history.metrics().items())
        written = " and ".join(str(path) for path in (results, plot_file) if path is not None)
        sys.stdout.write(f"{history.ended}\n{summary}\n" + (f"wrote {written}\n" if written else ""))
