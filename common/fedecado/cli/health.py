"""The standard gRPC health check, without the package of that name, which workers do not install."""

import grpc

_METHOD = "/grpc.health.v1.Health/Check"
_WHOLE_SERVER = b""  # HealthCheckRequest with no service named
_SERVING = b"\x08\x01"  # HealthCheckResponse with status = SERVING
PROBE_SECONDS = 3.0


def check(channel: grpc.Channel, seconds: float = PROBE_SECONDS) -> bool:
    """Whether the server behind `channel` says that it serves; raises when it says nothing."""
    call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_METHOD)
    return call(_WHOLE_SERVER, timeout=seconds) == _SERVING


def serving(target: str, seconds: float = PROBE_SECONDS) -> bool:
    """The same for an address, False also when nothing answers."""
    with grpc.insecure_channel(target) as channel:
        try:
            return check(channel, seconds)
        except grpc.RpcError:
            return False
