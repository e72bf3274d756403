"""Check the installation, this machine and the way to a coordinator, and say what to do.

One line per check: ok, warn or fail. Exits with 0 unless something fails. The coordinator is checked when
--coordinator or FEDECADO_WORKER__COORDINATOR names one: TCP, health, protocol, clock.
--probe is for container health checks: one question, quickly and without output. It asks the process that
answers on --health here whether it is ready (--probe alive: whether it answers), or else the coordinator.

Examples:
  fedecado doctor
  fedecado doctor --coordinator fl.example.org:50051        on a worker that does not get through
  fedecado doctor --bind 0.0.0.0:50051                      before a coordinator is started
  fedecado doctor --json | jq '.[] | select(.level != "ok")'
  HEALTHCHECK CMD fedecado doctor --probe                   in a Dockerfile
"""

# Nothing heavy up here: a probe runs every few seconds.
import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fedecado.cli.bearer import add_token, token_of
from fedecado.cli.tls_flags import add_tls, tls_of

if TYPE_CHECKING:
    from fedecado.cli.checks import Check

_VARIABLE = "FEDECADO_WORKER__COORDINATOR"
_HEALTH_VARIABLE = "FEDECADO_NETWORK__HEALTH_BIND"
_DEFAULT = "localhost:50051"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--coordinator",
        metavar="HOST:PORT",
        help=f"coordinator to reach (default ${_VARIABLE}; --probe: else {_DEFAULT})",
    )
    parser.add_argument("--bind", metavar="HOST:PORT", help="address that a coordinator here shall listen on")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="TOML file to check (default fedecado.toml)"
    )
    parser.add_argument(
        "--probe",
        nargs="?",
        const="ready",
        choices=("ready", "alive"),
        help="ask for health only, by default whether it is ready; exit 0 or 1",
    )
    parser.add_argument(
        "--health",
        metavar="HOST:PORT",
        help=f"health check here that --probe asks, instead of the coordinator (default ${_HEALTH_VARIABLE})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_tls(parser)
    add_token(parser)


def run(_: None, args: argparse.Namespace) -> int:
    if args.probe is not None:
        return 0 if _probe(args) else 1
    args.coordinator = args.coordinator or os.environ.get(_VARIABLE) or None
    failed = False
    found = []
    for check in _checks(args):
        failed |= check.level == "fail"
        found.append(check._asdict())
        if not args.json:
            _print(check)
    if args.json:
        import json

        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 1 if failed else 0


def _probe(args: argparse.Namespace) -> bool:
    """What was named on the command line counts before what the environment names."""
    from fedecado.cli.health import probe, serving

    health = args.health or (None if args.coordinator else os.environ.get(_HEALTH_VARIABLE))
    if health:
        return probe(health, args.probe)
    return serving(args.coordinator or os.environ.get(_VARIABLE) or _DEFAULT, tls_of(args))


def _checks(args: argparse.Namespace) -> Iterator["Check"]:
    from fedecado.cli import checks, reach

    yield checks.python()
    yield from checks.packages()
    yield checks.kernels()
    yield checks.torch()
    yield checks.torchvision()
    settings, configuration = checks.configuration(args.config)
    yield configuration
    yield checks.disk(settings.run.directory)
    yield checks.open_files()
    if args.tls_certificate is not None:
        yield checks.certificate(args.tls_certificate)
    yield reach.port(args.bind or settings.coordinator.bind, asked=args.bind is not None)
    if args.coordinator is not None:
        yield from reach.coordinator(args.coordinator, tls_of(args), token_of(args))


def _print(check: "Check") -> None:
    from rich.console import Console
    from rich.text import Text

    style = {"ok": "green", "warn": "yellow", "fail": "bold red"}[check.level]
    line = Text.assemble((f"{check.level:<4}", style), "  ", (check.name, "bold"), f": {check.detail}")
    # Lines are for people and for grep alike: never broken but by the terminal.
    Console(soft_wrap=True, highlight=False).print(line)
