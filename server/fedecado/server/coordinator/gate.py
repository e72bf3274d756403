"""Who may call the Admin service: certificates named `admin` or `admin-…`, and who shows the admin token."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

import grpc

from fedecado.common.errors import IdentityError
from fedecado.common.names import ADMIN, is_admin
from fedecado.server.coordinator.admin_token import AdminToken

if TYPE_CHECKING:
    from fedecado.server.coordinator.guard import Guard

BEARER: Final = "Bearer "
_GUARDED: Final = "/fedecado.v1.AdminService/"


class AdminGate(grpc.aio.ServerInterceptor):
    """Turns others away; a worker's certificate is for its own session alone."""

    def __init__(self, guard: "Guard | None", token: AdminToken | None) -> None:
        """Without a guard no certificates are in use, and only the token counts."""
        self._guard, self._token = guard, token

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """The method's handler, behind the gate if it is one of the service's."""
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(_GUARDED):
            return handler
        coding = handler.request_deserializer, handler.response_serializer
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(self._guard_stream(handler.unary_stream), *coding)
        return grpc.unary_unary_rpc_method_handler(self._guard_call(handler.unary_unary), *coding)

    def _guard_call(self, behaviour: Any) -> Any:
        async def call(request: Any, context: Any) -> Any:
            await self._check(context)
            return await behaviour(request, context)

        return call

    def _guard_stream(self, behaviour: Any) -> Any:
        async def call(request: Any, context: Any) -> AsyncIterator[Any]:
            await self._check(context)
            async for response in behaviour(request, context):
                # Again: who watches a run may be shut out meanwhile.
                await self._check(context)
                yield response

        return call

    async def _check(self, context: Any) -> None:
        presented = _bearer(context)
        if presented is not None and self._token is not None:
            if self._token.matches(presented):
                return
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this is not the coordinator's admin token")
        if self._guard is None:
            text = "this coordinator wants an admin token; name its file with --admin-token-file"
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, text)
            return
        try:
            name = self._guard.identify(context).name
        except IdentityError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
            return
        if not is_admin(name):
            text = f"the certificate of {name!r} may not do this; `fedecado certs issue {ADMIN}` makes one"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)


def _bearer(context: Any) -> str | None:
    """The token in a call's metadata."""
    values = (value for key, value in context.invocation_metadata() or () if key == "authorization")
    value = next(values, None)
    return value.removeprefix(BEARER) if isinstance(value, str) and value.startswith(BEARER) else None
