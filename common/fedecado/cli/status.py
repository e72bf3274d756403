"""Show where a run stands: phase, round, what it waits for, metrics and their course, and every worker.

Asks the coordinator; nothing is changed. Of many workers the first 20 are listed, --all lists all.
With --watch the picture stays and follows the run, across restarts of the coordinator, until Ctrl-C;
where there is no terminal, a line per change is written instead.

Examples:
  fedecado status
  fedecado status --watch --coordinator fl.example.org:50051
  fedecado status --tracebacks                  why workers fail, in full
  fedecado status --json | jq .status.rounds_closed
  fedecado status --watch --json                an object per change and line
"""

import argparse
import json
import sys
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from fedecado.cli import picture
from fedecado.cli.admin import Admin, Away, add_coordinator
from fedecado.cli.curves import Curves
from fedecado.cli.plain import plain
from fedecado.common.errors import FedecadoError
from fedecado.v1 import admin_pb2 as pb

SHOWN = 20
"""So many workers are listed without --all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_coordinator(parser)
    parser.add_argument("--watch", action="store_true", help="follow the run until Ctrl-C")
    parser.add_argument("--all", action="store_true", help=f"list every worker, not the first {SHOWN}")
    parser.add_argument("--tracebacks", action="store_true", help="show the workers' last errors in full")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(_: None, args: argparse.Namespace) -> int:
    with Admin.of(args) as admin:
        if args.watch:
            try:
                _watch(admin, args)
            except KeyboardInterrupt:
                sys.stdout.write("\n" if sys.stdout.isatty() else "")
            return 0
        status = admin.status()
        clients = _clients(admin, args)
        if args.json:
            sys.stdout.write(_json(status, clients, indent=2))
        else:
            picture.show(_picture(status, clients, args, _curves(admin, status, Curves())))
    return 0


def _clients(admin: Admin, args: argparse.Namespace) -> list[pb.Client]:
    # The worker that fails may be any of them, so tracebacks are looked for in all.
    most = None if args.all or args.tracebacks else SHOWN
    return list(admin.clients(most, tracebacks=args.tracebacks))


def _curves(admin: Admin, status: pb.RunStatus, curves: Curves) -> Curves:
    curves.update(status.rounds_closed, admin.rounds)
    return curves


def _picture(
    status: pb.RunStatus, clients: Sequence[pb.Client], args: argparse.Namespace, curves: Curves
) -> RenderableType:
    listed = clients if args.all else clients[:SHOWN]
    run_picture = picture.run_picture(status, listed, args.coordinator, curves.picture())
    return Group(run_picture, picture.tracebacks(clients)) if args.tracebacks else run_picture


def _watch(admin: Admin, args: argparse.Namespace) -> None:
    if args.json or not sys.stdout.isatty():
        _follow(admin, args)
        return
    latest: RenderableType = Text("asking the coordinator")
    curves = Curves()
    with Live(latest, auto_refresh=False) as live:
        for seen in admin.watch():
            if isinstance(seen, Away):
                live.update(Group(latest, Text(f"\n{_away(seen, args)}", style="bold yellow")), refresh=True)
                continue
            try:
                latest = _picture(seen, _clients(admin, args), args, _curves(admin, seen, curves))
            except FedecadoError:
                # It went away between the two calls; the next turn of the loop says so.
                continue
            live.update(latest, refresh=True)


def _follow(admin: Admin, args: argparse.Namespace) -> None:
    """A line per change, each at once: a pipe or a log reads along."""
    for seen in admin.watch():
        if isinstance(seen, Away):
            sys.stderr.write(f"{_away(seen, args)}\n")
        elif args.json:
            sys.stdout.write(_json(seen, None))
        else:
            sys.stdout.write(f"{picture.summary(seen)}\n")
        sys.stdout.flush()


def _away(away: Away, args: argparse.Namespace) -> str:
    return f"the coordinator at {args.coordinator} is away ({away.reason}); trying again, Ctrl-C ends this"


def _json(status: pb.RunStatus, clients: Sequence[pb.Client] | None, indent: int | None = None) -> str:
    content = {"status": plain(status)}
    listed = {} if clients is None else {"clients": [plain(client) for client in clients]}
    return json.dumps({**content, **listed}, indent=indent, allow_nan=False) + "\n"
