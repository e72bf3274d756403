"""Go on with a paused run.

Idle workers get tasks at once. A run that is not paused is left alone.

Examples:
  fedecado resume
  fedecado resume --coordinator fl.example.org:50051
"""

import argparse

from fedecado.cli import control


def add_arguments(parser: argparse.ArgumentParser) -> None:
    control.add_arguments(parser, reason=False)


def run(_: None, args: argparse.Namespace) -> int:
    return control.call(args, lambda admin: admin.resume())
