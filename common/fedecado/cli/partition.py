"""Show how a task deals its data out to clients: samples and labels of each, and how skewed they are.

Examples:
  fedecado partition                                       digits, 10 clients
  fedecado partition --task cifar10 --task-arg data=DATA --task-arg alpha=0.1 --clients 100 --plot labels.png
  fedecado partition --task mnist --task-arg data=DATA --task-arg partition=writers --task-arg writers=FILE
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from fedecado.common.errors import ConfigError
from fedecado.common.sections import QUADRATICS, FleetSection, RunSection, TaskSection
from fedecado.common.settings import Loaded, Settings

CLIENTS_SHOWN = 20


class PartitionSettings(Settings):
    """What the partition of a task depends on."""

    run: RunSection = RunSection()
    task: TaskSection = TaskSection()
    fleet: FleetSection = FleetSection()


SETTINGS = PartitionSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it (.png, .svg or .pdf)")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")


def run(loaded: Loaded[PartitionSettings], args: argparse.Namespace) -> int:
    settings = loaded.settings
    if settings.task.factory == QUADRATICS:
        raise ConfigError("quadratics have no labels; give partition another --task")
    try:
        from fedecado.experiments.labels import Distribution, distribution, draw
    except ModuleNotFoundError as error:
        raise ConfigError(f"this task needs {error.name}; install fedecado[client]") from error
    task, clients = settings.task, settings.fleet.clients
    found: Distribution = distribution(task.factory, task.arguments, clients, settings.run.seed)
    if args.json:
        sys.stdout.write(json.dumps({"skew": found.skew(), "counts": found.counts.tolist()}) + "\n")
    else:
        sys.stdout.write(_table(found.counts, found.effective_labels()))
        sys.stdout.write(f"skew {found.skew():.3f} (0: all clients alike; towards 1: nothing in common)\n")
    if args.plot is not None:
        draw(found, args.plot, f"{clients} clients, {found.sizes.sum():,} samples")
        sys.stderr.write(f"wrote {args.plot}\n")
    return 0


def _table(counts: "np.typing.NDArray[np.int64]", effective: "np.typing.NDArray[np.float64]") -> str:
    """Size, labels in effect and the most frequent labels of the first clients."""
    lines = ["client  samples  labels in effect  most frequent labels (samples)"]
    for client, own in enumerate(counts[:CLIENTS_SHOWN]):
        first = [label for label in np.argsort(-own, kind="stable")[:4] if own[label]]
        often = "  ".join(f"{label} ({own[label]})" for label in first)
        lines.append(f"{client:>6}  {own.sum():>7}  {effective[client]:>16.1f}  {often}")
    if len(counts) > CLIENTS_SHOWN:
        lines.append(f"and {len(counts) - CLIENTS_SHOWN} more clients; --json has them all")
    sizes = counts.sum(1)
    lines.append(
        f"{len(counts)} clients with {sizes.min()} to {sizes.max()} samples (median {np.median(sizes):g})"
    )
    return "\n".join(lines) + "\n"
