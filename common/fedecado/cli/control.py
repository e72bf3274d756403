"""What commands that steer a run share: one call, and the state it leaves on one line."""

import argparse
import getpass
import sys
from collections.abc import Callable

from fedecado.cli.admin import Admin, add_coordinator
from fedecado.cli.picture import summary
from fedecado.v1.admin_pb2 import Client, RunStatus


def add_arguments(parser: argparse.ArgumentParser, *, reason: bool = True) -> None:
    add_coordinator(parser)
    if reason:
        parser.add_argument("--reason", metavar="TEXT", help="why, for the coordinator's log")


def add_worker_arguments(parser: argparse.ArgumentParser, *, reason: bool = True) -> None:
    parser.add_argument("workers", nargs="+", metavar="WORKER", help="a worker's id")
    add_arguments(parser, reason=reason)


def call_each(args: argparse.Namespace, action: Callable[[Admin, str], Client | None], done: str) -> int:
    """Do one thing to every worker that was named."""
    with Admin.of(args) as admin:
        for worker in args.workers:
            known = action(admin, worker)
            sys.stdout.write(f"{worker} {done}{'' if known else ' (it was never here)'}\n")
    return 0


def call(args: argparse.Namespace, action: Callable[[Admin], RunStatus]) -> int:
    with Admin.of(args) as admin:
        sys.stdout.write(f"{summary(action(admin))}\n")
    return 0


def reason(args: argparse.Namespace) -> str:
    """What was given, or else who it was."""
    given: str | None = args.reason
    if given is not None:
        return given
    try:
        return f"asked for by {getpass.getuser()}"
    except (OSError, KeyError):
        # A container may run under a number that has no name.
        return "asked for by an operator"
