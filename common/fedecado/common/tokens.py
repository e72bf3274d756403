"""Enrolment tokens: who shows one gets a certificate for an id that the token allows.

A token is `fdt_ID_SECRET`; of the secret only the SHA-256 is stored (it is 256 random bits, so a slow hash
would protect nothing more). A token counts its uses and ends. One for a single id gives that id, also anew;
one for a prefix gives each id once, so that its holders cannot take each other's.
"""

import datetime
import hashlib
import hmac
import re
import secrets
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from fedecado.common.certificates import Authority, check_name, fingerprint, is_name, issued
from fedecado.common.errors import ConfigError, IdentityError
from fedecado.common.names import is_admin
from fedecado.common.registry import add, registry

_TEXT: Final = re.compile(r"fdt_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class Token:
    """What is stored of a token."""

    id: str
    digest: bytes
    name: str
    prefix: bool
    """Whether `name` is only how the ids begin."""
    uses: int
    used: int
    created: float
    expires: float
    revoked: float | None

    def problem(self, now: float) -> str:
        """Why it gives nothing more; empty if it does."""
        if self.revoked is not None:
            return "is revoked"
        if self.expires <= now:
            return f"ended {datetime.datetime.fromtimestamp(self.expires, datetime.UTC):%Y-%m-%d %H:%M} UTC"
        return "" if self.used < self.uses else f"has been used {self.used} times, which is all it was for"


def create(folder: Path, name: str, *, prefix: bool = False, uses: int = 1, hours: float = 24.0) -> str:
    """Make a token and note its hash; the token is returned once and can never be had again."""
    check_name(name)
    if is_admin(name):
        raise ConfigError(f"{name!r}: an operator's certificate is not given for a token; use fedecado certs")
    if uses < 1 or not 0 < hours <= 24 * 366:
        raise ConfigError(f"{uses} uses within {hours:g} hours; at least one, within a year, is possible")
    Authority.load(folder)
    number, secret, now = secrets.token_hex(6), secrets.token_urlsafe(32), time.time()
    with registry(folder) as connection:
        connection.execute(
            "INSERT INTO tokens VALUES (?, ?, ?, ?, ?, 0, ?, ?, NULL)",
            (number, _digest(secret), name, prefix, uses, now, now + 3600 * hours),
        )
    return f"fdt_{number}_{secret}"


def tokens(folder: Path) -> list[Token]:
    """All of them, oldest first."""
    with registry(folder) as connection:
        return [_token(row) for row in connection.execute("SELECT * FROM tokens ORDER BY created")]


def revoke_token(folder: Path, number: str) -> None:
    """Let a token give nothing more."""
    with registry(folder) as connection:
        found = connection.execute(
            "UPDATE tokens SET revoked = coalesce(revoked, ?) WHERE id = ?", (time.time(), number)
        )
        if not found.rowcount:
            raise ConfigError(f"there is no token {number!r}; `fedecado tokens ls` shows all")


def redeem(
    authority: Authority, text: str, wanted: str, key: ec.EllipticCurvePublicKey, life: datetime.timedelta
) -> x509.Certificate:
    """A certificate for a token's holder: one use of it, unless this key was given one for it before."""
    with registry(authority.folder) as connection:
        token = _authentic(connection, text)
        name, again = _repeated(connection, token, key), True
        if name is None:
            _require(not (problem := token.problem(time.time())), f"this token {problem}; ask for another")
            name, again = _choose(token, wanted, _taken(connection)), False
        else:
            _require(token.revoked is None and token.expires > time.time(), "this token is over")
        certificate = authority.sign(key, name, life)
        add(connection, issued(certificate, token.id))
        connection.execute("UPDATE tokens SET used = used + ? WHERE id = ?", (not again, token.id))
    return certificate


def renew(
    authority: Authority, name: str, key: ec.EllipticCurvePublicKey, life: datetime.timedelta
) -> x509.Certificate:
    """A new certificate for an identity that was proven by the one before."""
    _require(not is_admin(name), f"{name!r} is an operator's; `fedecado certs rotate` renews it")
    certificate = authority.sign(key, name, life)
    with registry(authority.folder) as connection:
        add(connection, issued(certificate))
    return certificate


def request_key(csr: bytes) -> ec.EllipticCurvePublicKey:
    """The key of a signing request in DER, once its holder has proven to have it."""
    try:
        request = x509.load_der_x509_csr(csr)
        key, proven = request.public_key(), request.is_signature_valid
    except ValueError as error:
        raise IdentityError(f"the signing request cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise IdentityError("the signing request is not for a P-256 key")
    if not proven:
        raise IdentityError("the signing request is not signed with its own key")
    return key


def _authentic(connection: sqlite3.Connection, text: str) -> Token:
    """The token behind a text; whoever guesses learns nothing, not even whether an id exists."""
    match = _TEXT.fullmatch(text)
    number, secret = match.groups() if match else ("", "")
    row = connection.execute("SELECT * FROM tokens WHERE id = ?", (number,)).fetchone()
    token = None if row is None else _token(row)
    same = hmac.compare_digest(_digest(secret), bytes(32) if token is None else token.digest)
    if token is None or not same:
        raise IdentityError("this is no token of this coordinator's; `fedecado tokens create` makes one")
    return token


def _repeated(connection: sqlite3.Connection, token: Token, key: ec.EllipticCurvePublicKey) -> str | None:
    """The id that this key got for this token, when the answer was lost on its way."""
    row = connection.execute(
        "SELECT name FROM certificates WHERE token = ? AND key = ? AND revoked IS NULL",
        (token.id, fingerprint(key)),
    ).fetchone()
    return None if row is None else str(row[0])


def _taken(connection: sqlite3.Connection) -> Callable[[str], bool]:
    def taken(name: str) -> bool:
        query = "SELECT 1 FROM certificates WHERE name = ?"
        return connection.execute(query, (name,)).fetchone() is not None

    return taken


def _choose(token: Token, wanted: str, taken: Callable[[str], bool]) -> str:
    if not token.prefix:
        _require(wanted in ("", token.name), f"this token is for {token.name!r}, not for {wanted[:64]!r}")
        return token.name
    if wanted:
        fits = wanted.startswith(token.name) and is_name(wanted) and not is_admin(wanted)
        _require(fits, f"this token is for ids that begin with {token.name!r}; {wanted[:64]!r} does not")
        text = f"{wanted!r} has a certificate already; a token for it alone gives another"
        _require(not taken(wanted), f"{text}: fedecado tokens create {wanted}")
        return wanted
    number = token.used
    while taken(f"{token.name}{number}"):
        number += 1
    return f"{token.name}{number}"


def _token(row: tuple[Any, ...]) -> Token:
    number, digest, name, prefix, *counts = row
    return Token(number, digest, name, bool(prefix), *counts)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise IdentityError(text)
