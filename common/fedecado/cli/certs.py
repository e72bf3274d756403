"""Make, renew and revoke the certificates of a federation: an authority, a coordinator's, one per worker.

Each worker's certificate carries its id; a session cannot claim another's. Certificates last 90 days.
`rotate` makes new ones for the names given, or for all whose time is two thirds over: another key, the same
name and hosts; processes read the new files by themselves. `revoke` takes a name or a serial number and
writes crl.pem; a coordinator whose ca.pem lies beside it ends the sessions concerned within seconds.
Keep ca.key where certificates are made: coordinator and workers need ca.pem and their own pair only.

Examples:
  fedecado certs init
  fedecado certs issue coordinator --host fl.example.org --host 10.0.0.5
  fedecado certs issue worker-0 worker-1 worker-2
  fedecado certs list
  fedecado certs rotate
  fedecado certs revoke worker-1
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

DAYS = 90


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("init", "issue", "list", "rotate", "revoke"), help="what to do")
    parser.add_argument("names", nargs="*", metavar="NAME", help="whose certificates, or a serial number")
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
    parser.add_argument(
        "--days", type=int, metavar="N", help=f"validity (default {DAYS}; for rotate, as before)"
    )


def run(_: None, args: argparse.Namespace) -> int:
    try:
        from fedecado.common import certificates
    except ModuleNotFoundError as error:
        raise ConfigError(f"certificates need {error.name}; install fedecado[tls]") from error
    match args.action:
        case "init":
            _say(f"made {certificates.make_authority(args.folder)}; keep ca.key to yourself")
        case "issue":
            days = DAYS if args.days is None else args.days
            for name in _named(args):
                _made(certificates.issue(args.folder, name, hosts=args.host, days=days))
        case "rotate":
            _rotate(args)
        case "revoke":
            _revoke(args)
        case _:
            _list(args.folder)
    return 0


def _rotate(args: argparse.Namespace) -> None:
    from fedecado.common.certificates import RESERVED, is_due, rotate

    present = [path for path in sorted(args.folder.glob("*.pem")) if path.stem not in RESERVED]
    names = args.names or [path.stem for path in present if is_due(path)]
    for name in names:
        _made(rotate(args.folder, name, args.days))
    if not names:
        _say(f"nothing is due: none of {len(present)} certificates has had two thirds of its time")


def _revoke(args: argparse.Namespace) -> None:
    from fedecado.common.revocation import FILE, revoke_certificates

    for which in _named(args):
        for certificate in revoke_certificates(args.folder, which):
            _say(f"revoked {certificate.serial} of {certificate.name}")
    _say(f"wrote {args.folder / FILE}; a coordinator elsewhere needs it beside its ca.pem")


def _list(folder: Path) -> None:
    """What the registry knows, and files from before there was one."""
    from fedecado.common.certificates import issued, load_certificate
    from fedecado.common.registry import NAME, Issued, certificates, registry

    known: dict[str, Issued] = {}
    if (folder / NAME).exists():
        with registry(folder) as connection:
            known = {certificate.serial: certificate for certificate in certificates(connection)}
    for path in sorted(folder.glob("*.pem")):
        if path.stem != "crl":
            found = issued(load_certificate(path))
            known.setdefault(found.serial, found)
    now = datetime.datetime.now(datetime.UTC)
    for certificate in sorted(known.values(), key=lambda each: (each.name, each.issued)):
        ends = datetime.datetime.fromtimestamp(certificate.expires, datetime.UTC)
        left = f"{(ends - now).days} days left" if ends > now else "over"
        state = "revoked" if certificate.revoked is not None else left
        _say(f"{certificate.name:<24} until {ends:%Y-%m-%d} ({state})  {certificate.serial}")


def _named(args: argparse.Namespace) -> list[str]:
    names: list[str] = args.names
    if not names:
        raise ConfigError(f"{args.action} whose certificates? fedecado certs {args.action} NAME ...")
    return names


def _made(path: Path) -> None:
    _say(f"made {path} and {path.with_suffix('.key').name}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
