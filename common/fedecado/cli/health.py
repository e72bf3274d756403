"""The standard gRPC health check, without the package of that name, which workers do not install."""

from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from fedecado.common.tls import ClientTls

_METHOD = "/grpc.health.v1.Health/Check"
_WHOLE_SERVER = b""  # HealthCheckRequest with no service named
_SERVING = b"\x08\x01"  # HealthCheckResponse with status = SERVING
PROBE_SECONDS = 3.0


def check(channel: grpc.Channel, seconds: float = PROBE_SECONDS) -> bool:
    """Whether the server behind `channel` says that it serves; raises when it says nothing."""
    call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_METHOD)
    return call(_WHOLE_SERVER, timeout=seconds) == _SERVING


def channel(target: str, tls: "ClientTls | None" = None) -> grpc.Channel:
    """A plain channel: a probe loads no more than it must."""
    if tls is None:
        return grpc.insecure_channel(target)
    return grpc.secure_channel(target, tls.channel_credentials())


def serving(target: str, tls: "ClientTls | None" = None, seconds: float = PROBE_SECONDS) -> bool:
    """The same for an address, False also when nothing answers."""
    with channel(target, tls) as line:
        try:
            return check(line, seconds)
        except grpc.RpcError:
            return False
