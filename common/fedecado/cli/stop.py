"""End a run; its model can still be downloaded from the coordinator.

The open round is brought to its end first, so no work is lost. With --now tasks are cancelled and the
open round is dropped. Stopping twice changes nothing, and --now hastens a stop that is under way.

Examples:
  fedecado stop                                 after the open round
  fedecado stop --now --reason "wrong learning rate"
  fedecado stop && fedecado model download --best -o best.safetensors
"""

import argparse

from fedecado.cli import control


def add_arguments(parser: argparse.ArgumentParser) -> None:
    control.add_arguments(parser)
    parser.add_argument("--now", action="store_true", help="do not wait for the open round")


def run(_: None, args: argparse.Namespace) -> int:
    return control.call(args, lambda admin: admin.stop(control.reason(args), now=args.now))
