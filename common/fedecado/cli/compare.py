"""Compare algorithms on the same data, clients and initial model, over several settings and seeds.

What is compared is a preset, an experiment file, or the settings given here with --algorithms. Within a
setting and seed everything but the algorithm is the same: the partition, the clients that are asked, when
they answer, the initial model. Runs are done several at a time on the simulator, or one after the other on
real worker processes. Each finished run is a file; started again, the command goes on with what is missing.

The folder gets report.html (plots and tables in one file), summary.md, results.json and results.parquet.

Presets (as in the FedECADO paper; --size small finishes on a laptop):
  noniid    labels from Dirichlet(0.1), 100 clients, 10 per round
  async     equal labels; learning rates and epochs differ from client to client
  scaling   both, with a larger model
  buffered  stream mode with slow and fast clients, against FedBuff on the same arrivals

Examples:
  fedecado compare --algorithms fedecado,fedavg --rounds 30 --rates 0.01,0.1 --epochs 1,10 --seeds 3
  fedecado compare noniid --size small --data DATA --folder runs/noniid
  fedecado compare noniid --size small --data DATA --folder runs/noniid --tune
  fedecado compare noniid --size small --data DATA --settings cifar10 --seeds 1
  fedecado compare my_experiment.toml --jobs 8
"""

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from fedecado.cli.comparing import Comparing, Request
from fedecado.common.errors import ConfigError
from fedecado.common.settings import Loaded
from fedecado.experiments.plan import Experiment
from fedecado.experiments.presets import PRESETS, preset
from fedecado.simulator.assemble import SimulateSettings

SETTINGS = SimulateSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "experiment",
        nargs="?",
        metavar="EXPERIMENT",
        help=f"preset ({', '.join(PRESETS)}) or experiment file (.toml)",
    )
    add = parser.add_argument_group("comparison").add_argument
    add("--algorithms", metavar="NAME,NAME", help="compare these (default: those of the experiment)")
    add("--settings", metavar="NAME,NAME", help="in these of its settings (default: all of them)")
    add("--seeds", metavar="N", help="number of seeds, or a list such as 3,4; 3, is seed 3 alone")
    add("--size", metavar="SIZE", help="size of the experiment, such as small (default: the full one)")
    add("--data", metavar="DIR", help="folder of the data set")
    add("--folder", type=Path, metavar="DIR", help="where results go (default runs/compare-EXPERIMENT)")
    add("--jobs", type=int, metavar="N", help="runs at a time (default: one per core)")
    add(
        "--on",
        choices=("simulator", "processes"),
        default="simulator",
        help="where to run (default simulator)",
    )
    add("--tune", action="store_true", help="tune each algorithm first, on a validation split")
    add("--metric", default="accuracy", metavar="NAME", help="what to compare (default accuracy)")
    add("--quiet", action="store_true", help="show no progress")


def run(loaded: Loaded[SimulateSettings], args: argparse.Namespace) -> int:
    experiment, name = _experiment(args)
    given = _given(loaded)
    if args.data is not None:
        given["task.arguments.data"] = args.data
    if args.jobs is not None and args.jobs < 1:
        raise ConfigError(f"--jobs is {args.jobs}; it must be 1 or more")
    request = Request(
        experiment=experiment.only(_names(args.algorithms), _seeds(args.seeds), _names(args.settings)),
        given=given,
        folder=args.folder or Path("runs") / f"compare-{name}",
        jobs=args.jobs or os.cpu_count() or 1,
        metric=args.metric,
        tune=args.tune,
        on=args.on,
        quiet=args.quiet,
        command="fedecado " + shlex.join(sys.argv[1:]),
    )
    try:
        Comparing(request).run()
    except KeyboardInterrupt:
        sys.stderr.write("stopped; finished runs are kept, the same command goes on with the others\n")
        raise
    return 0


def _experiment(args: argparse.Namespace) -> tuple[Experiment, str]:
    if args.experiment is None:
        if args.size is not None:
            raise ConfigError("--size is for presets and experiment files; name one")
        return Experiment("Comparison"), "own"
    path = Path(args.experiment)
    if path.suffix == ".toml":
        return Experiment.read(path, args.size), path.stem
    return preset(args.experiment, args.size), args.experiment


def _given(loaded: Loaded[SimulateSettings]) -> dict[str, Any]:
    """What the user set, by dotted name: it wins over the experiment."""
    values = loaded.settings.model_dump()
    found: dict[str, Any] = {}
    for name, origin in loaded.origin.items():
        if origin == "default":
            continue
        value: Any = values
        for part in name.split("."):
            value = value[part]
        if not isinstance(value, dict):
            found[name] = value
    return found


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",")]


def _seeds(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.removesuffix(",").split(",")]
    except ValueError:
        raise ConfigError(
            f"--seeds is {text!r}; it must be a number of seeds or a list such as 3,4, or 3, for one"
        ) from None
    if min(numbers) < 0 or (numbers == [0] and "," not in text):
        raise ConfigError(f"--seeds is {text!r}; seeds must be 0 or more, and there must be one at least")
    return tuple(range(numbers[0])) if "," not in text else tuple(dict.fromkeys(numbers))
