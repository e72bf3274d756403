"""A worker's own key and certificate, for workers that enrol themselves.

Both are in one file, `identity.pem`, so that a renewal replaces them at one stroke: a pair of which only
half is new would lock the worker out. `identity.key` is there only until the first certificate is.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedecado.common.certificates import SKEW, common_name, fingerprint, load_certificate, private_pem
from fedecado.common.errors import ConfigError, IdentityError
from fedecado.common.private_files import write_private
from fedecado.common.tls import TlsFiles

IDENTITY: Final = "identity.pem"
KEY: Final = "identity.key"
AUTHORITY: Final = "ca.pem"


@final
@dataclass(frozen=True, slots=True)
class Credential:
    """What is in a worker's folder."""

    folder: Path
    worker_id: str
    issued: float
    ends: float

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """The worker's certificate; None if there is none, or it has ended."""
        path = folder / IDENTITY
        if not path.exists():
            return None
        certificate = load_certificate(path)
        issued = certificate.not_valid_before_utc + SKEW
        found = cls(
            folder,
            common_name(certificate),
            issued.timestamp(),
            certificate.not_valid_after_utc.timestamp(),
        )
        return found if found.ends > time.time() else None

    @property
    def tls(self) -> TlsFiles:
        return TlsFiles(self.folder / AUTHORITY, self.folder / IDENTITY, self.folder / IDENTITY)

    @property
    def due(self) -> float:
        """When to renew it: two thirds of its life leave time for a coordinator that is away."""
        return self.issued + (self.ends - self.issued) * 2 / 3


def first_key(folder: Path) -> ec.EllipticCurvePrivateKey:
    """The key to enrol with: the same one until that succeeds, for an answer may get lost on its way."""
    path = folder / KEY
    if path.exists():
        try:
            key = serialization.load_pem_private_key(path.read_bytes(), None)
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot use {path}: {error}; remove it to make another") from error
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return key
    made = new_key()
    write_private(path, private_pem(made))
    return made


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def signing_request(key: ec.EllipticCurvePrivateKey) -> bytes:
    """PKCS #10 in DER; the subject is the coordinator's to choose."""
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return request.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def keep(folder: Path, key: ec.EllipticCurvePrivateKey, certificate: bytes) -> Credential:
    """Check a certificate against its key and the authority, and make it this worker's own."""
    try:
        given = x509.load_pem_x509_certificate(certificate)
        given.verify_directly_issued_by(load_certificate(folder / AUTHORITY))
    except (ValueError, TypeError, InvalidSignature) as error:
        raise IdentityError(f"the coordinator sent no certificate of its authority: {error}") from error
    if fingerprint(given.public_key()) != fingerprint(key.public_key()):
        raise IdentityError("the coordinator sent a certificate for another key")
    write_private(folder / IDENTITY, given.public_bytes(serialization.Encoding.PEM) + private_pem(key))
    (folder / KEY).unlink(missing_ok=True)
    credential = Credential.load(folder)
    if credential is None:
        raise IdentityError("the coordinator sent a certificate that has ended; compare the clocks of both")
    return credential
