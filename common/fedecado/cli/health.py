"""The standard gRPC health check, without the package of that name, which workers do not install."""

from typing import TYPE_CHECKING, Literal

import grpc

from fedecado.common.health_port import ALIVE, READY, SERVICE, SERVING

if TYPE_CHECKING:
    from fedecado.common.tls import ClientTls

_METHOD = f"/{SERVICE}/Check"
PROBE_SECONDS = 3.0
Probe = Literal["alive", "ready"]


def check(channel: grpc.Channel, seconds: float = PROBE_SECONDS, request: bytes = ALIVE) -> bool:
    """Whether the server behind `channel` says that it serves; raises when it says nothing."""
    call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_METHOD)
    return call(request, timeout=seconds) == SERVING


def probe(bind: str, what: Probe) -> bool:
    """Whether the process that answers health checks on `bind` here is `alive` or `ready`."""
    host, _, port = bind.rpartition(":")
    target = f"localhost:{port}" if host in ("0.0.0.0", "[::]") else bind  # noqa: S104 - compared, not bound
    return serving(target, request={"alive": ALIVE, "ready": READY}[what])


def channel(target: str, tls: "ClientTls | None" = None) -> grpc.Channel:
    """A plain channel: a probe loads no more than it must."""
    if tls is None:
        return grpc.insecure_channel(target)
    return grpc.secure_channel(target, tls.channel_credentials())


def serving(target: str, tls: "ClientTls | None" = None, request: bytes = ALIVE) -> bool:
    """Whether the server at `target` serves; False also when nothing answers."""
    with channel(target, tls) as line:
        try:
            return check(line, request=request)
        except grpc.RpcError:
            return False
