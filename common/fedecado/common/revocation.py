"""Certificates that no longer count before they end: a standard, signed revocation list (`crl.pem`).

The authority writes it, anyone may carry it to a coordinator, and a coordinator takes it only with the
authority's signature.
"""

import datetime
import time
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedecado.common.certificates import DAY, Authority, issued, load_certificate
from fedecado.common.errors import ConfigError
from fedecado.common.private_files import write_private
from fedecado.common.registry import Issued, add, certificates, registry, revoke

FILE: Final = "crl.pem"


def revoke_certificates(folder: Path, which: str) -> list[Issued]:
    """Revoke all certificates of a name, or the one with a serial number, and write the list anew."""
    authority, own = Authority.load(folder), folder / f"{which}.pem"
    with registry(folder) as connection:
        found = revoke(connection, which)
        if not found and own.exists() and which != "ca":
            # Made before there was a registry.
            add(connection, issued(load_certificate(own)))
            found = revoke(connection, which)
        if not found:
            raise ConfigError(f"no certificate named or numbered {which!r}; `fedecado certs list` shows all")
        now = time.time()
        listed = [c for c in certificates(connection) if c.revoked is not None and c.expires > now]
        write_private(folder / FILE, _signed_list(authority, listed))
    return found


def read_revoked(crl: Path, ca: Path) -> frozenset[int]:
    """The serial numbers in a list; a ConfigError unless the authority signed it."""
    try:
        found = x509.load_pem_x509_crl(crl.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{crl} is no revocation list: {error}") from error
    key = load_certificate(ca).public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not found.is_signature_valid(key):
        raise ConfigError(f"{crl} is not signed by the authority of {ca}; copy the one beside its ca.key")
    return frozenset(entry.serial_number for entry in found)


def _signed_list(authority: Authority, revoked: list[Issued]) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(now)
        # Written anew with every revocation, not by the calendar.
        .next_update(max(authority.certificate.not_valid_after_utc, now + DAY))
    )
    for certificate in revoked:
        at = datetime.datetime.fromtimestamp(certificate.revoked or time.time(), datetime.UTC)
        entry = x509.RevokedCertificateBuilder().serial_number(int(certificate.serial, 16))
        builder = builder.add_revoked_certificate(entry.revocation_date(at).build())
    signed = builder.sign(authority.key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)
