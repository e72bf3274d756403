"""A small certificate authority for one federation.

Keys are elliptic (P-256), certificates short-lived, files private (0600). The authority's key stays
where the certificates are made; coordinator and workers get their own pair and `ca.pem`.
"""

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedecado.common.errors import ConfigError

AUTHORITY_DAYS = 3650
SKEW = datetime.timedelta(minutes=5)
"""Certificates are valid from a little before now, for clocks that differ."""


def make_authority(folder: Path, name: str = "fedecado") -> Path:
    """Make `ca.pem` and `ca.key`; an authority that is there already is an error."""
    if (folder / "ca.pem").exists():
        raise ConfigError(f"{folder / 'ca.pem'} exists; certificates of the old authority would be void")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} authority")])
    builder = _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_pair(folder, "ca", certificate, key)
    return folder / "ca.pem"


def issue(folder: Path, name: str, *, hosts: Sequence[str] = (), days: int = 90) -> Path:
    """Make NAME.pem and NAME.key, signed by the authority in `folder`.

    With `hosts` (names and addresses) it is a coordinator's, without it a worker's or an operator's.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}", name):
        raise ConfigError(f"certificate name {name!r}: use up to 64 letters, digits and . _ : @ -")
    if not 1 <= days <= AUTHORITY_DAYS:
        raise ConfigError(f"{days} days; a certificate lasts between 1 and {AUTHORITY_DAYS} days")
    authority, authority_key = _load_authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [ExtendedKeyUsageOID.CLIENT_AUTH]
    alternatives = [_alternative(host) for host in hosts] or [x509.DNSName(_label(name))]
    builder = _builder(subject, authority.subject, key.public_key(), days)
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    _write_pair(folder, name, certificate, key)
    return folder / f"{name}.pem"


def expiry(path: Path) -> datetime.datetime:
    """When a certificate ends."""
    return _load_certificate(path).not_valid_after_utc


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _label(name: str) -> str:
    """A worker's id as a host name, for tools that insist on one."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", name)


def _load_authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate = _load_certificate(folder / "ca.pem")
    try:
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot use {folder / 'ca.key'}: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{folder / 'ca.key'} is no elliptic-curve key; it was not made by fedecado")
    return certificate, key


def _load_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}; `fedecado certs init` comes first"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path} is no certificate: {error}") from error


def _write_pair(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write_private(folder / f"{name}.key", private)
    _write_private(folder / f"{name}.pem", certificate.public_bytes(serialization.Encoding.PEM))


def _write_private(path: Path, content: bytes) -> None:
    """Written aside with mode 0600 and renamed: a reader sees the old file or the new one."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
