"""Who is at the other end of a connection, as its certificate says."""

from dataclasses import dataclass
from typing import Any

from cryptography import x509

from fedecado.common.certificates import common_name


@dataclass(frozen=True, slots=True)
class Peer:
    """A certificate that TLS has verified."""

    name: str
    serial: int
    ends: float
    """When it stops being valid, in seconds since the epoch."""


def peer_of(context: Any) -> Peer | None:
    """The certificate behind a call; none on connections that show none."""
    shown = context.auth_context().get("x509_pem_cert")
    if not shown:
        return None
    certificate = x509.load_pem_x509_certificate(shown[0])
    return Peer(
        common_name(certificate), certificate.serial_number, certificate.not_valid_after_utc.timestamp()
    )
