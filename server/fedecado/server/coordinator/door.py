"""The second port: for those who have no certificate but a token, a worker's or an operator's."""

from typing import TYPE_CHECKING, Final, final

import grpc

from fedecado.common.errors import ConfigError
from fedecado.common.timeouts import Timeouts
from fedecado.common.tls import TlsFiles
from fedecado.common.transport import server_options
from fedecado.server.coordinator.admin import AdminService
from fedecado.server.coordinator.admin_token import AdminToken
from fedecado.server.coordinator.gate import AdminGate
from fedecado.v1 import admin_pb2_grpc

if TYPE_CHECKING:
    from fedecado.server.coordinator.enrolment import Enroller

MESSAGE_BYTES: Final = 16 << 10
"""Largest request at the door; a token and a signing request take less than one KiB."""
CALLS: Final = 256
"""Calls at the door at a time; more are turned away, not queued."""


@final
class Door:
    """A server that shows the coordinator's certificate and asks for none."""

    def __init__(self, enroller: "Enroller", admin: AdminService, token: AdminToken | None) -> None:
        self._enroller, self._admin, self._token = enroller, admin, token
        self._server: grpc.aio.Server | None = None
        self.address = ""

    async def open(self, address: str, tls: TlsFiles, timeouts: Timeouts) -> None:
        """Listen; the Admin service is there only if there is a token to guard it."""
        small = [("grpc.max_receive_message_length", MESSAGE_BYTES)]
        options = [option for option in server_options(timeouts) if option[0] != small[0][0]]
        server = grpc.aio.server(
            options=[*options, *small],
            compression=grpc.Compression.NoCompression,
            interceptors=(AdminGate(None, self._token),),
            maximum_concurrent_rpcs=CALLS,
        )
        server.add_generic_rpc_handlers((self._enroller.at_the_door(),))
        if self._token is not None:
            admin_pb2_grpc.add_AdminServiceServicer_to_server(self._admin, server)
        self.address = bind(server, address, tls.server_credentials(mutual=False))
        await server.start()
        self._server = server

    async def close(self, grace: float) -> None:
        """Let calls end, and listen no more. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace)


def bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    """Add a port; the address with the number that it got."""
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise ConfigError(f"cannot listen on {address}; is another process using that port?") from error
    return f"{address.rpartition(':')[0]}:{port}"
