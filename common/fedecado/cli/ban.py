"""Shut workers out of a run.

Their sessions end, they are refused from now on, also after a restart of the coordinator, and what they
contributed to the balance of the run (in FedECADO: their flows) leaves it. An id that was never here can be
banned, too. A ban is one run's; to shut somebody out of all of them, revoke the certificate
(`fedecado certs revoke`). `fedecado unban` lifts a ban.

Examples:
  fedecado ban worker-7 --reason "sends garbage"
  fedecado ban worker-7 worker-8 --coordinator fl.example.org:50051
"""

import argparse

from fedecado.cli import control

add_arguments = control.add_worker_arguments


def run(_: None, args: argparse.Namespace) -> int:
    reason = control.reason(args)
    return control.call_each(args, lambda admin, worker: admin.ban(worker, reason), "is banned")
