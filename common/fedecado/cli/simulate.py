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
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from fedecado.cli.progress import RoundProgress
from fedecado.common.settings import Loaded
from fedecado.simulator import History
from fedecado.simulator.assemble import SimulateSettings, make_simulation, make_workload
from fedecado.simulator.crew import Helpers

SETTINGS = SimulateSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON; - for standard output")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    # Not the setting's own flag: `fedecado config` knows both this one and the load test's.
    parser.add_argument(
        "--processes",
        dest="simulate.processes",
        default=argparse.SUPPRESS,
        metavar="N",
        help="short for --simulate-processes",
    )


def run(loaded: Loaded[SimulateSettings], args: argparse.Namespace) -> int:
    settings, options = loaded.settings, loaded.settings.simulate
    helpers = Helpers(options.processes, partial(make_workload, settings)) if options.processes > 1 else None
    with (
        helpers or nullcontext(),
        RoundProgress(settings.rounds.max_rounds, quiet=args.quiet) as progress,
    ):
        simulation = make_simulation(
            settings,
            make_workload(settings),
            crew=helpers,
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
