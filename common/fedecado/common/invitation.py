"""A token file: the token on its first line and, below, the certificate of the authority.

Trust begins here. Whoever hands the file over vouches for the authority in it; with that the worker
knows its coordinator before it shows the token. A file with the token alone needs `network.tls_ca` beside it.
"""

from dataclasses import dataclass, field
from pathlib import Path

from fedecado.common.errors import ConfigError

_BEGIN = "-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a worker needs to enrol."""

    token: str = field(repr=False)
    authority: bytes
    """PEM."""

    def text(self) -> str:
        return f"{self.token}\n{self.authority.decode('ascii').strip()}\n"


def read_invitation(path: Path, ca: Path | None = None) -> Invitation:
    """The content of a token file; the authority comes from `ca` if the file has none."""
    try:
        text = path.read_text("ascii")
        known = None if ca is None else ca.read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the token file: {error}; `fedecado tokens create` makes one"
        ) from error
    token, begin, rest = text.partition(_BEGIN)
    authority = begin + rest if begin else known
    if not token.strip() or any(letter.isspace() for letter in token.strip()):
        raise ConfigError(f"the first line of {path} is no token; `fedecado tokens create` makes one")
    if authority is None or _BEGIN not in authority:
        raise ConfigError(
            f"{path} holds a token but no certificate of the authority; set network.tls_ca, for a token is "
            "not shown to a coordinator that cannot be told from another"
        )
    return Invitation(token.strip(), authority.encode())
