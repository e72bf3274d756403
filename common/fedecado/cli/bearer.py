"""The operator's token: from a file or a variable, never from the command line, where all can see it."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc

from fedecado.common.errors import ConfigError

FILE_VARIABLE: Final = "FEDECADO_NETWORK__ADMIN_TOKEN_FILE"
TOKEN_VARIABLE: Final = "FEDECADO_ADMIN_TOKEN"  # noqa: S105 - a variable's name, no secret


def add_token(parser: argparse.ArgumentParser) -> None:
    """The flag that names the file of the token."""
    value = os.environ.get(FILE_VARIABLE)
    parser.add_argument(
        "--admin-token-file",
        type=Path,
        metavar="FILE",
        default=None if value is None else Path(value),
        help=f"admin token, instead of an admin certificate (default ${FILE_VARIABLE}, or ${TOKEN_VARIABLE}, "
        "which holds the token itself)",
    )


def token_of(args: argparse.Namespace) -> str | None:
    """The token that was given, if any."""
    path: Path | None = args.admin_token_file
    if path is None:
        return os.environ.get(TOKEN_VARIABLE, "").strip() or None
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the admin token in {path}: {error}") from error


class _Details(NamedTuple):
    """A call with more metadata; what gRPC reads of it."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: Any
    compression: Any


class Bearer(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Shows the token with every call of a channel."""

    def __init__(self, token: str) -> None:
        self._metadata = ("authorization", f"Bearer {token}")

    def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        return continuation(self._with_token(details), request)

    def intercept_unary_stream(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        return continuation(self._with_token(details), request)

    def _with_token(self, details: Any) -> _Details:
        return _Details(
            details.method,
            details.timeout,
            [*(details.metadata or ()), self._metadata],
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )
