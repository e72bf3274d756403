"""A small certificate authority for one federation.

Keys are elliptic (P-256), certificates short-lived, files private (0600). The authority's key stays
where the certificates are made; coordinator and workers get their own pair and `ca.pem`. What was given
out is noted in the `registry` beside the key.
"""

import datetime
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedecado.common.errors import ConfigError
from fedecado.common.private_files import write_private
from fedecado.common.registry import Issued, add, registry

AUTHORITY_DAYS = 3650
SKEW = datetime.timedelta(minutes=5)
"""Certificates are valid from a little before now, for clocks that differ."""
RESERVED = ("ca", "crl")
"""Names of the authority's own files."""
DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Authority:
    """Whoever holds `ca.key`."""

    folder: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The authority whose `ca.pem` and `ca.key` are in a folder."""
        certificate = load_certificate(folder / "ca.pem")
        try:
            key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot use {folder / 'ca.key'}: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigError(f"{folder / 'ca.key'} is no elliptic-curve key; it was not made by fedecado")
        return cls(folder, certificate, key)

    def sign(
        self,
        key: ec.EllipticCurvePublicKey,
        name: str,
        life: datetime.timedelta,
        hosts: Sequence[str] = (),
    ) -> x509.Certificate:
        """A certificate: with `hosts` (names, addresses) a coordinator's, else a worker's or operator's."""
        check_name(name)
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [ExtendedKeyUsageOID.CLIENT_AUTH]
        alternatives = [_alternative(host) for host in hosts] or [x509.DNSName(_label(name))]
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = _builder(_subject(name), self.certificate.subject, key, life)
        return (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self.key, hashes.SHA256())
        )


def make_authority(folder: Path, name: str = "fedecado") -> Path:
    """Make `ca.pem` and `ca.key`; an authority that is there already is an error."""
    if (folder / "ca.pem").exists():
        raise ConfigError(f"{folder / 'ca.pem'} exists; certificates of the old authority would be void")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(f"{name} authority")
    builder = _builder(subject, subject, key.public_key(), AUTHORITY_DAYS * DAY)
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_pair(folder, "ca", certificate, key)
    return folder / "ca.pem"


def issue(folder: Path, name: str, *, hosts: Sequence[str] = (), days: int = 90) -> Path:
    """Make NAME.pem and NAME.key, signed by the authority in `folder`; see `Authority.sign`."""
    check_name(name)
    if name in RESERVED:
        raise ConfigError(f"{name!r} would overwrite the authority's own {name}.pem; choose another name")
    if not 1 <= days <= AUTHORITY_DAYS:
        raise ConfigError(f"{days} days; a certificate lasts between 1 and {AUTHORITY_DAYS} days")
    authority = Authority.load(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = authority.sign(key.public_key(), name, days * DAY, hosts)
    with registry(folder) as connection:
        add(connection, issued(certificate))
    _write_pair(folder, name, certificate, key)
    return folder / f"{name}.pem"


def rotate(folder: Path, name: str, days: int | None = None) -> Path:
    """Issue a certificate anew: another key, the same name and hosts and, unless said, the same life."""
    old = load_certificate(folder / f"{name}.pem")
    life = round((old.not_valid_after_utc - old.not_valid_before_utc - SKEW) / DAY)
    return issue(folder, name, hosts=_hosts(old), days=days or max(1, life))


def is_due(path: Path) -> bool:
    """Whether two thirds of a certificate's life are over."""
    certificate = load_certificate(path)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return datetime.datetime.now(datetime.UTC) > begins + (ends - begins) * 2 / 3


def issued(certificate: x509.Certificate, token: str | None = None) -> Issued:
    """What the registry keeps of a certificate."""
    return Issued(
        serial=f"{certificate.serial_number:x}",
        name=common_name(certificate),
        key=fingerprint(certificate.public_key()),
        issued=certificate.not_valid_before_utc.timestamp() + SKEW.total_seconds(),
        expires=certificate.not_valid_after_utc.timestamp(),
        token=token,
    )


def common_name(certificate: x509.Certificate) -> str:
    """Whom a certificate is for."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def fingerprint(key: object) -> bytes:
    """SHA-256 of a public key."""
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ConfigError("the key is no elliptic-curve key; it was not made by fedecado")
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    digest = hashes.Hash(hashes.SHA256())
    digest.update(key.public_bytes(encoding, form))
    return digest.finalize()


def check_name(name: str) -> None:
    """Raise unless a certificate can be for this name."""
    if not is_name(name):
        raise ConfigError(f"certificate name {name[:80]!r}: use up to 64 letters, digits and . _ : @ -")


def is_name(name: str) -> bool:
    """Whether a certificate can be for this name."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}", name) is not None


def expiry(path: Path) -> datetime.datetime:
    """When a certificate ends."""
    return load_certificate(path).not_valid_after_utc


def load_certificate(path: Path) -> x509.Certificate:
    """The first certificate in a PEM file."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}; `fedecado certs init` comes first"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path} is no certificate: {error}") from error


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A key as it is written to files."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, life: datetime.timedelta
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + life)
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


def _hosts(certificate: x509.Certificate) -> list[str]:
    """The names and addresses of a coordinator; none for others."""
    purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    if ExtendedKeyUsageOID.SERVER_AUTH not in purposes:
        return []
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def _label(name: str) -> str:
    """A worker's id as a host name, for tools that insist on one."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", name)


def _write_pair(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    write_private(folder / f"{name}.key", private_pem(key))
    write_private(folder / f"{name}.pem", certificate.public_bytes(serialization.Encoding.PEM))
