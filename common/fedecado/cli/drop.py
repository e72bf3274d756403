"""End workers' sessions now; they may come back at once.

For a connection that hangs, or to have a worker say hello anew. `fedecado ban` keeps it away.

Examples:
  fedecado drop worker-7
"""

import argparse

from fedecado.cli import control

add_arguments = control.add_worker_arguments


def run(_: None, args: argparse.Namespace) -> int:
    reason = control.reason(args)
    return control.call_each(args, lambda admin, worker: admin.drop(worker, reason), "is dropped")
