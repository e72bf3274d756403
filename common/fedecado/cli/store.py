"""Look after the folder of a run: check it, list it, clean it, export it.

A run's folder holds all that a coordinator needs to go on after a crash. Stop the coordinator before
check, gc and export; ls works beside it.

Examples:
  fedecado store ls runs/demo
  fedecado store check runs/demo
  fedecado store export runs/demo -o demo-snapshot
  fedecado store export runs/demo --version 40 -o v40.safetensors
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from fedecado.cli.plain import clean, nbytes
from fedecado.cli.subcommands import run_subcommand, subcommands

LS = """Show what a run's folder holds: where the run stands, versions kept, and the space used."""

CHECK = """Verify every checksum of a run's folder.

Prints each problem on a line and exits with 1 if there is any, so that a script can act on it.
"""

GC = """Remove files that nothing in the run refers to, such as those of a step that a crash cut off."""

EXPORT = """Write a run, or one of its models, to take elsewhere.

Without --version: the whole run as a folder (JSON and safetensors) from which a new run can begin.
With it: that version alone, as a safetensors model file; `ls` shows which versions are kept.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser, "check | ls | gc | export")
    table: list[tuple[str, Callable[[argparse.Namespace], int], str, str]] = [
        ("check", _check, "verify every checksum", CHECK),
        ("ls", _ls, "show what the folder holds", LS),
        ("gc", _gc, "remove files that nothing refers to", GC),
        ("export", _export, "write a portable snapshot or a model", EXPORT),
    ]
    made = {}
    for name, action, text, description in table:
        made[name] = actions.add_parser(name, help=text, description=description)
        made[name].set_defaults(action=action)
        made[name].add_argument("folder", type=Path, metavar="RUN_DIR", help="folder of the run")
    made["ls"].add_argument("--json", action="store_true", help="print JSON")
    out = made["export"]
    out.add_argument("-o", "--output", type=Path, required=True, metavar="PATH", help="what to write")
    out.add_argument("--version", type=int, metavar="N", help="only the model of this version")


def run(_: None, args: argparse.Namespace) -> int:
    return run_subcommand(args)


def _check(args: argparse.Namespace) -> int:
    from fedecado.server.store import check

    problems = check(args.folder)
    for problem in problems:
        sys.stdout.write(f"{clean(problem)}\n")
    if not problems:
        sys.stdout.write(f"{args.folder} is sound\n")
    return 1 if problems else 0


def _ls(args: argparse.Namespace) -> int:
    from fedecado.server.store import listing

    found = listing(args.folder)
    if args.json:
        sys.stdout.write(json.dumps(asdict(found), indent=2) + "\n")
        return 0
    used = found.database_bytes + found.vector_bytes
    lines = [
        f"run         {clean(found.run_id)}, {found.algorithm}, {found.parameters:,} parameters",
        f"checkpoint  version {found.version}, round {found.round}, {_moment(found.checkpoint_at)}",
        f"journal     {found.events} events since, {found.updates} of them updates",
        f"clients     {found.clients} with a vector of their own",
        f"space       {nbytes(used)} ({nbytes(found.unreferenced_bytes)} unreferenced)",
        *(f"kept        version {m.version}, {_moment(m.at)}, {nbytes(m.nbytes)}" for m in found.models),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _gc(args: argparse.Namespace) -> int:
    from fedecado.server.store import gc

    sys.stdout.write(f"freed {nbytes(gc(args.folder))}\n")
    return 0


def _export(args: argparse.Namespace) -> int:
    from fedecado.server.store import export, export_model

    if args.version is not None:
        export_model(args.folder, args.version, args.output)
        sys.stdout.write(f"wrote {args.output}: version {args.version}\n")
        return 0
    snapshot = export(args.folder, args.output)
    sys.stdout.write(
        f"wrote {args.output}: version {snapshot.version} of {clean(snapshot.run_id)}, "
        f"{snapshot.clients} clients' vectors\n"
    )
    return 0


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(sep=" ", timespec="seconds")
