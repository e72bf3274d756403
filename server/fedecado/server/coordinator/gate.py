"""Who may call the Admin service when certificates are in use: those named `admin` or `admin-…`."""

from collections.abc import AsyncIterator
from typing import Any, Final

import grpc

from fedecado.common.tls import peer_name

ADMIN: Final = "admin"
_GUARDED: Final = "/fedecado.v1.AdminService/"


class AdminGate(grpc.aio.ServerInterceptor):
    """Turns other certificates away; a worker's is for its own session alone."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """The method's handler, behind the gate if it is one of the service's."""
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(_GUARDED):
            return handler
        coding = handler.request_deserializer, handler.response_serializer
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(_guard_stream(handler.unary_stream), *coding)
        return grpc.unary_unary_rpc_method_handler(_guard_call(handler.unary_unary), *coding)


def _guard_call(behaviour: Any) -> Any:
    async def call(request: Any, context: Any) -> Any:
        await _check(context)
        return await behaviour(request, context)

    return call


def _guard_stream(behaviour: Any) -> Any:
    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        await _check(context)
        async for response in behaviour(request, context):
            yield response

    return call


async def _check(context: Any) -> None:
    name = peer_name(context) or ""
    if name != ADMIN and not name.startswith(f"{ADMIN}-"):
        text = f"the certificate of {name!r} may not do this; `fedecado certs issue {ADMIN}` makes one"
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)
