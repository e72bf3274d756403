"""Addresses and certificates, the same on both sides."""

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from fedecado.common.settings import Section

if TYPE_CHECKING:
    from fedecado.common.tls import TlsFiles

HOST_PORT = r"^(\[[0-9A-Fa-f:]+\]|[^\s:/\[\]]+):[0-9]{1,5}$"


class NetworkSection(Section):
    """The line between workers and coordinator."""

    peer_loss: float = Field(
        15.0,
        ge=0.1,
        le=3600,
        description="Seconds within which a dead peer is noticed; all other time limits follow from it.",
        json_schema_extra={"metavar": "SECONDS"},
    )
    tls_ca: Path | None = Field(None, description="Certificate of the authority that both sides trust.")
    tls_certificate: Path | None = Field(None, description="This process's own certificate.")
    tls_key: Path | None = Field(None, description="The key of that certificate.")
    tls_crl: Path | None = Field(
        None, description="List of revoked certificates; none is crl.pem beside tls_ca, when there is one."
    )
    admin_token_file: Path | None = Field(
        None, description="File with the token that operators without an admin certificate show."
    )
    health_bind: str | None = Field(
        None,
        pattern=HOST_PORT,
        description="Address of a health check in plain text for probes; port 0 takes a free one.",
        json_schema_extra={"allowed": "HOST:PORT", "metavar": "HOST:PORT"},
    )
    insecure: bool = Field(
        False,
        description="Listen, or connect as a worker, beyond this machine without TLS, on a trusted network.",
    )

    def tls(self) -> "TlsFiles | None":
        """The files of mutual TLS, if they are given."""
        from fedecado.common.tls import TlsFiles  # it loads gRPC, which few commands need

        return TlsFiles.choose(self.tls_ca, self.tls_certificate, self.tls_key)
