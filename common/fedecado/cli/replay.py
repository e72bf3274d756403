"""Execute a run again from its record and say where it first differs.

Every run records the order of what arrived, and digests of each update and of each new model. With the
updates themselves kept (coordinator --store-record) everything is computed again, to the last bit; without
them the decisions are, and the models of the rounds since the last checkpoint. Stop the coordinator first.
Exits with 1 if something differs: an update was changed, the settings, the code, or the machine adds
numbers in another order.

Examples:
  fedecado coordinator --name study --store-record
  fedecado replay runs/study
  fedecado replay runs/study --json | jq .difference
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fedecado.cli.plain import clean, clean_lines
from fedecado.cli.progress import RoundProgress

if TYPE_CHECKING:
    from fedecado.server.store import Replayed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="RUN_DIR", help="folder of the run")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(_: None, args: argparse.Namespace) -> int:
    from fedecado.server.store import replay_run

    with RoundProgress(None, quiet=args.quiet) as progress:
        told = replay_run(args.folder, lambda number: progress.show(number, {}))
    if args.json:
        sys.stdout.write(json.dumps(asdict(told), indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(_lines(told)) + "\n")
    return 0 if told.difference is None else 1


def _lines(told: "Replayed") -> list[str]:
    since = f" from event {told.begins + 1} on, where the record begins" if told.begins else ""
    lines = [
        f"run       {clean(told.run_id)}, {told.algorithm}",
        f"replayed  {told.events} events{since}",
        f"computed  {told.computed} of {told.decided} rounds, with {told.updates} updates",
    ]
    if not told.complete:
        lines.append(
            "          of earlier rounds only the decisions, as their updates were not kept; "
            "--store-record keeps them"
        )
    if told.difference is None:
        return [*lines, "no difference"]
    return [*lines, "", f"first difference: {clean_lines(str(told.difference))}"]
