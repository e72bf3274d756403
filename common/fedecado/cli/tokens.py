"""Make, list and revoke the tokens with which workers enrol, and make the operators' token.

A worker that shows a token gets a certificate for the id that the token is for: NAME, or with --prefix one
that begins with NAME. A token counts its uses, ends, and is stored as a hash; what `create` prints, or writes
with mode 0600, is the only copy. It holds the authority's certificate, too, by which the worker knows the
coordinator: hand it over as you would a password. Run this where ca.key is, on the coordinator's machine.

Examples:
  fedecado tokens create worker-0 -o worker-0.token
  fedecado tokens create worker- --prefix --uses 20 --hours 2 -o workers.token
  fedecado tokens ls
  fedecado tokens revoke 3f9c0a1b2c4d
  fedecado tokens admin -o admin.token
then
  fedecado coordinator --bind 0.0.0.0:50051 --enrolment-bind 0.0.0.0:50052 --network-tls-ca certs/ca.pem \\
    --network-tls-certificate certs/coordinator.pem --network-tls-key certs/coordinator.key
  fedecado worker --coordinator fl.example.org:50051 --join-address fl.example.org:50052 \\
    --join-token-file worker-0.token
"""

import argparse
import datetime
import secrets
import sys
import time
from pathlib import Path

from fedecado.cli.subcommands import run_subcommand, subcommands
from fedecado.common.errors import ConfigError
from fedecado.common.private_files import write_private


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parsers = subcommands(parser, "create|ls|revoke|admin")
    create = parsers.add_parser("create", description="Make a token.")
    create.add_argument("name", metavar="NAME", help="the worker's id, or how the ids begin")
    create.add_argument("--prefix", action="store_true", help="NAME is how the ids begin")
    create.add_argument("--uses", type=int, metavar="N", default=1, help="how many workers (default 1)")
    create.add_argument("--hours", type=float, metavar="N", default=24.0, help="validity (default 24)")
    create.set_defaults(action=_create)
    listing = parsers.add_parser("ls", description="List the tokens and what is left of them.")
    listing.set_defaults(action=_list)
    revoke = parsers.add_parser("revoke", description="Let tokens give nothing more.")
    revoke.add_argument("tokens", nargs="+", metavar="ID", help="the first part of a token, as ls shows it")
    revoke.set_defaults(action=_revoke)
    admin = parsers.add_parser("admin", description="Make a token for network.admin_token_file.")
    admin.set_defaults(action=_admin)
    for sub in (create, listing, revoke):
        sub.add_argument(
            "--folder", type=Path, default=Path("certs"), metavar="DIR", help="authority (default certs)"
        )
    for sub in (create, admin):
        sub.add_argument(
            "-o", "--output", type=Path, metavar="FILE", help="write it there (default: print it)"
        )


def run(_: None, args: argparse.Namespace) -> int:
    try:
        return run_subcommand(args)
    except ModuleNotFoundError as error:
        raise ConfigError(f"tokens need {error.name}; install fedecado[tls]") from error


def _create(args: argparse.Namespace) -> int:
    from fedecado.common.invitation import Invitation
    from fedecado.common.tokens import create

    authority = args.folder / "ca.pem"
    token = create(args.folder, args.name, prefix=args.prefix, uses=args.uses, hours=args.hours)
    _hand_out(Invitation(token, authority.read_bytes()).text(), args.output)
    return 0


def _admin(args: argparse.Namespace) -> int:
    _hand_out(f"{secrets.token_urlsafe(32)}\n", args.output)
    return 0


def _hand_out(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    write_private(output, text.encode())
    sys.stdout.write(f"wrote {output}; it is a secret\n")


def _list(args: argparse.Namespace) -> int:
    from fedecado.common.tokens import tokens

    now = time.time()
    for token in tokens(args.folder):
        ends = datetime.datetime.fromtimestamp(token.expires, datetime.UTC)
        state = token.problem(now) or f"good until {ends:%Y-%m-%d %H:%M} UTC"
        name = f"{token.name}*" if token.prefix else token.name
        sys.stdout.write(f"{token.id}  {name:<24} used {token.used} of {token.uses}  {state}\n")
    return 0


def _revoke(args: argparse.Namespace) -> int:
    from fedecado.common.tokens import revoke_token

    for number in args.tokens:
        # The whole token is taken, too, though it should not be on a command line.
        revoke_token(args.folder, number.removeprefix("fdt_").partition("_")[0])
        sys.stdout.write(f"revoked {number.removeprefix('fdt_').partition('_')[0]}\n")
    return 0
