"""Mutual TLS: both sides show a certificate of the run's own authority.

A worker's certificate carries its id as common name, so a session cannot claim another's. The
coordinator's files are read again when they change: certificates are renewed without a restart.
"""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from fedecado.common.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ServerTrust:
    """TLS for those who have no certificate: they know the authority, and show a token instead."""

    ca: Path

    def channel_credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(_read_pem(self.ca))


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the authority's certificate, our own, and its key."""

    ca: Path
    certificate: Path
    key: Path

    @classmethod
    def choose(cls, ca: Path | None, certificate: Path | None, key: Path | None) -> "TlsFiles | None":
        """All three or none."""
        given = {"tls_ca": ca, "tls_certificate": certificate, "tls_key": key}
        if ca is not None and certificate is not None and key is not None:
            return cls(ca, certificate, key)
        missing = [name for name, path in given.items() if path is None]
        if len(missing) < len(given):
            raise ConfigError(f"TLS needs three files; network.{' and network.'.join(missing)} is not set")
        return None

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """What a worker or an operator shows and trusts."""
        ca, certificate, key = self._read()
        return grpc.ssl_channel_credentials(ca, key, certificate)

    def server_credentials(self, *, mutual: bool = True) -> grpc.ServerCredentials:
        """What a coordinator shows and trusts, read anew whenever a file has changed.

        gRPC's Python cannot ask for a certificate without insisting on one: `mutual` asks, else it does not.
        """
        self._read()
        latest: list[tuple[float, ...]] = [self._stamps()]

        def fetch() -> Any:
            stamps = self._stamps()
            if stamps == latest[0]:
                return None
            try:
                renewed = self._server_configuration()
            except ConfigError:
                return None  # half-written; the old ones are good until it is whole
            latest[0] = stamps
            return renewed

        return grpc.dynamic_ssl_server_credentials(
            self._server_configuration(), fetch, require_client_authentication=mutual
        )

    def _server_configuration(self) -> Any:
        ca, certificate, key = self._read()
        return grpc.ssl_server_certificate_configuration([(key, certificate)], ca)

    def _stamps(self) -> tuple[float, ...]:
        try:
            return tuple(path.stat().st_mtime_ns for path in (self.ca, self.certificate, self.key))
        except OSError:
            return ()

    def _read(self) -> tuple[bytes, bytes, bytes]:
        return _read_pem(self.ca), _read_pem(self.certificate), _read_pem(self.key)


ClientTls = TlsFiles | ServerTrust


def _read_pem(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the TLS file {path}: {error.strerror}") from error
    if b"-----BEGIN" not in content:
        raise ConfigError(f"{path} is no PEM file; `fedecado certs` makes the right ones")
    return content


def require_safe_bind(address: str, tls: TlsFiles | None, *, insecure: bool) -> None:
    """Refuse to be reachable from other machines without TLS, unless that was said."""
    if tls is None and not insecure and not is_loopback(address):
        raise ConfigError(
            f"{address} can be reached from other machines, and there is no TLS; make certificates with "
            "`fedecado certs` and set network.tls_*, or say --network-insecure on a network you trust"
        )


def require_safe_target(address: str, tls: ClientTls | None, *, insecure: bool) -> None:
    """Refuse to send updates in plain text to another machine, unless that was said."""
    if tls is None and not insecure and not is_loopback(address):
        raise ConfigError(
            f"{address} is on another machine, and there is no TLS; set network.tls_* to this worker's "
            "certificate, enrol with --join-address, or say --network-insecure on a network you trust"
        )


def is_loopback(address: str) -> bool:
    """Whether an address is on this machine and reachable from it alone."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
