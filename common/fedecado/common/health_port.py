"""The standard gRPC health check on a port of its own, in plain text, for whoever watches over a process.

The probes of Kubernetes show no certificate, and a worker listens on nothing else. The check tells
one bit and takes nothing in, so that it may be open where the rest is not. The whole server (no service
named) is alive while its event loop answers; the service `ready` serves while the process is of use.
Messages are so small that they are spelled out here: workers do not install the package that has them.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, Self, final

import grpc

from fedecado.common.errors import ConfigError

log = logging.getLogger(__name__)

SERVICE: Final = "grpc.health.v1.Health"
ALIVE: Final = b""  # HealthCheckRequest with no service named
READY: Final = b"\x0a\x05ready"  # with service = "ready"
SERVING: Final = b"\x08\x01"  # HealthCheckResponse with status = SERVING
NOT_SERVING: Final = b"\x08\x02"
_REQUEST_BYTES: Final = 1024


@final
class HealthPort(AbstractAsyncContextManager["HealthPort"]):
    """`async with HealthPort(bind) as health` serves it; without an address it does nothing."""

    def __init__(self, bind: str | None) -> None:
        self._bind = bind
        self._server: grpc.aio.Server | None = None
        self.ready: Callable[[], bool] = lambda: False
        """Asked at every check of `ready`; whoever owns the process sets it."""
        self.address = ""

    async def __aenter__(self) -> Self:
        if self._bind is None:
            return self
        # A second process on the same port would answer for the first.
        options = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", _REQUEST_BYTES)]
        server = grpc.aio.server(options=options)
        check: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(self._check)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Check": check}),))
        try:
            port = server.add_insecure_port(self._bind)
        except RuntimeError as error:
            raise ConfigError(
                f"cannot listen on {self._bind} for health checks; give network.health_bind another port"
            ) from error
        await server.start()
        self._server, self.address = server, f"{self._bind.rpartition(':')[0]}:{port}"
        log.info("health checks are answered on %s", self.address)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace=None)

    async def _check(self, request: bytes, context: Any) -> bytes:
        if request == ALIVE:
            return SERVING
        if request == READY:
            return SERVING if self.ready() else NOT_SERVING
        await context.abort(grpc.StatusCode.NOT_FOUND, "there are the services '' and 'ready'")
        raise AssertionError("abort raises")
