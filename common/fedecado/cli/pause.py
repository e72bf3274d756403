"""Pause a run: no more tasks are given out.

What workers have in hand is still taken in, and they stay connected. Pausing twice changes nothing.
`fedecado resume` goes on.

Examples:
  fedecado pause
  fedecado pause --reason "the test set is being replaced" --coordinator fl.example.org:50051
"""

import argparse

from fedecado.cli import control

add_arguments = control.add_arguments


def run(_: None, args: argparse.Namespace) -> int:
    return control.call(args, lambda admin: admin.pause(control.reason(args)))
