"""Make the certificates of a federation: an authority, a coordinator's, one per worker.

Each worker's certificate carries its id; a session cannot claim another's. Certificates last 90 days;
issue them again under the same name to renew them, the coordinator reads the new files by itself. Keep
ca.key where certificates are made: coordinator and workers need ca.pem and their own pair only.

Examples:
  fedecado certs init
  fedecado certs issue coordinator --host fl.example.org --host 10.0.0.5
  fedecado certs issue worker-0 worker-1 worker-2
  fedecado certs list
then
  fedecado coordinator --bind 0.0.0.0:50051 --network-tls-ca certs/ca.pem \\
    --network-tls-certificate certs/coordinator.pem --network-tls-key certs/coordinator.key
  fedecado worker --worker-id worker-0 --coordinator fl.example.org:50051 --network-tls-ca certs/ca.pem \\
    --network-tls-certificate certs/worker-0.pem --network-tls-key certs/worker-0.key
"""

import argparse
import datetime
import sys
from pathlib import Path

from fedecado.common.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("init", "issue", "list"), help="what to do")
    parser.add_argument("names", nargs="*", metavar="NAME", help="whom to issue certificates to")
    parser.add_argument(
        "--folder", type=Path, default=Path("certs"), metavar="DIR", help="where they are (default certs)"
    )
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="HOST",
        help="name or address that workers reach the coordinator under; repeatable",
    )
    parser.add_argument("--days", type=int, default=90, metavar="N", help="validity (default 90)")


def run(_: None, args: argparse.Namespace) -> int:
    try:
        from fedecado.common import certificates
    except ModuleNotFoundError as error:
        raise ConfigError(f"certificates need {error.name}; install fedecado[tls]") from error
    match args.action:
        case "init":
            sys.stdout.write(f"made {certificates.make_authority(args.folder)}; keep ca.key to yourself\n")
        case "issue":
            if not args.names:
                raise ConfigError("issue certificates to whom? fedecado certs issue NAME ...")
            for name in args.names:
                path = certificates.issue(args.folder, name, hosts=args.host, days=args.days)
                sys.stdout.write(f"made {path} and {path.with_suffix('.key').name}\n")
        case _:
            now = datetime.datetime.now(datetime.UTC)
            for path in sorted(args.folder.glob("*.pem")):
                ends = certificates.expiry(path)
                left = (ends - now).days
                sys.stdout.write(f"{path.stem:<24} until {ends:%Y-%m-%d} ({left} days left)\n")
    return 0
