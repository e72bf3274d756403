"""Let banned workers come back to a run, as ones that are new.

Examples:
  fedecado unban worker-7
"""

import argparse
from functools import partial

from fedecado.cli import control

add_arguments = partial(control.add_worker_arguments, reason=False)


def run(_: None, args: argparse.Namespace) -> int:
    return control.call_each(args, lambda admin, worker: admin.unban(worker), "may come back")
