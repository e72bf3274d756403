"""The operators' shared secret, for those who have no certificate named `admin`.

Held as a digest and compared in constant time. The file is looked at again when it changes, so a token
is replaced without a restart; while the file is missing or unusable, nobody's token matches.
"""

import hashlib
import hmac
import logging
import stat
from pathlib import Path
from typing import Final, Self, final

from fedecado.common.errors import ConfigError

log = logging.getLogger(__name__)

LEAST: Final = 24
"""Shortest token in characters: what `fedecado tokens admin` makes is far longer, a typed word is not."""


@final
class AdminToken:
    """Made by `from_file`; `matches` is all that anyone needs to ask."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = _stamp(path)
        self._digest: bytes | None = _digest(path)

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """The token in a file, without the white space around it; a ConfigError if there is none."""
        _warn_if_open(path)
        return cls(path)

    def matches(self, presented: str) -> bool:
        """Whether this is the token; how long that takes tells nothing about it."""
        self._refresh()
        found = hashlib.sha256(presented.encode("utf-8", "surrogatepass")).digest()
        return self._digest is not None and hmac.compare_digest(found, self._digest)

    def _refresh(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._digest = _digest(self._path)
        except ConfigError as error:
            self._digest = None
            log.error("no operator's token is taken until this is mended: %s", error)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _digest(path: Path) -> bytes:
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the admin token in {path}: {error}; `fedecado tokens admin` makes one"
        ) from error
    if len(token) < LEAST:
        raise ConfigError(
            f"the admin token in {path} has {len(token)} characters, fewer than {LEAST}; "
            "`fedecado tokens admin` makes a good one"
        )
    return hashlib.sha256(token.encode()).digest()


def _warn_if_open(path: Path) -> None:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return  # reading it fails next, and says why
    if mode & 0o007:
        log.warning("%s can be read by everyone on this machine (mode %o); chmod 600 it", path, mode)
