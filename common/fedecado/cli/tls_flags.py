"""The flags of mutual TLS for commands that read no settings; light, for probes start often."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedecado.common.tls import ClientTls


def add_tls(parser: argparse.ArgumentParser) -> None:
    """Flags for the files of mutual TLS."""
    for name, words in (("ca", "authority's certificate"), ("certificate", "certificate"), ("key", "key")):
        variable = f"FEDECADO_NETWORK__TLS_{name.upper()}"
        value = os.environ.get(variable)
        parser.add_argument(
            f"--tls-{name}",
            type=Path,
            metavar="FILE",
            default=None if value is None else Path(value),
            help=f"{words} for TLS (default ${variable})",
        )


def tls_of(args: argparse.Namespace) -> "ClientTls | None":
    """The TLS files that were given, if any; the authority's alone is for those who show a token."""
    from fedecado.common.tls import ServerTrust, TlsFiles

    if args.tls_ca is not None and args.tls_certificate is None and args.tls_key is None:
        return ServerTrust(args.tls_ca)
    return TlsFiles.choose(args.tls_ca, args.tls_certificate, args.tls_key)
