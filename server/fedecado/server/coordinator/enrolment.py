"""Certificates for workers: for a token on a port of its own, and anew for whoever has one.

Two ports because gRPC's Python cannot ask a client for a certificate without insisting on one. The second
one, the door, knows the coordinator's certificate and no more: it takes tokens.
"""

import asyncio
import datetime
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import grpc
from cryptography.hazmat.primitives.serialization import Encoding

from fedecado.common import tokens
from fedecado.common.certificates import Authority, common_name
from fedecado.common.errors import ConfigError, FedecadoError, IdentityError
from fedecado.server.coordinator.guard import Guard
from fedecado.v1 import enrol_pb2 as pb

log = logging.getLogger(__name__)

SERVICE: Final = pb.DESCRIPTOR.services_by_name["EnrolService"].full_name


@dataclass(frozen=True, slots=True)
class Enrolment:
    """Where the door is, whose certificates it gives, and how long they last."""

    bind: str
    folder: Path
    life: datetime.timedelta


@final
class Enroller:
    """Signs for the authority in a folder."""

    def __init__(self, folder: Path, life: datetime.timedelta, guard: Guard) -> None:
        self._authority, self._life, self._guard = Authority.load(folder), life, guard
        if self._authority.certificate.not_valid_after_utc < datetime.datetime.now(datetime.UTC) + life:
            raise ConfigError(f"the authority in {folder} ends before the certificates it would give")

    def at_the_door(self) -> grpc.GenericRpcHandler:
        """`Enrol`, for a server that asks for no certificates."""
        method = grpc.unary_unary_rpc_method_handler(
            self.enrol, pb.EnrolRequest.FromString, pb.EnrolResponse.SerializeToString
        )
        return grpc.method_handlers_generic_handler(SERVICE, {"Enrol": method})

    def inside(self) -> grpc.GenericRpcHandler:
        """`Renew`, for a server with mutual TLS."""
        method = grpc.unary_unary_rpc_method_handler(
            self.renew, pb.RenewRequest.FromString, pb.RenewResponse.SerializeToString
        )
        return grpc.method_handlers_generic_handler(SERVICE, {"Renew": method})

    async def enrol(self, request: pb.EnrolRequest, context: Any) -> pb.EnrolResponse:
        """A certificate for a token."""
        try:
            key = tokens.request_key(request.csr)
            certificate = await asyncio.to_thread(
                tokens.redeem, self._authority, request.token, request.worker_id, key, self._life
            )
        except FedecadoError as error:
            await _refuse(context, error, "nobody")
            raise AssertionError("abort raises") from error
        name = common_name(certificate)
        log.info("%s gets a certificate (%x) from %s", name, certificate.serial_number, context.peer())
        return pb.EnrolResponse(worker_id=name, certificate=certificate.public_bytes(Encoding.PEM))

    async def renew(self, request: pb.RenewRequest, context: Any) -> pb.RenewResponse:
        """A new certificate for the caller's identity, if the one it shows still counts."""
        name = "nobody"
        try:
            name = self._guard.identify(context).name
            key = tokens.request_key(request.csr)
            certificate = await asyncio.to_thread(tokens.renew, self._authority, name, key, self._life)
        except FedecadoError as error:
            await _refuse(context, error, name)
            raise AssertionError("abort raises") from error
        log.info("%s renews its certificate (%x)", name, certificate.serial_number)
        return pb.RenewResponse(certificate=certificate.public_bytes(Encoding.PEM))


async def _refuse(context: Any, error: FedecadoError, name: str) -> None:
    log.warning("no certificate for %s at %s: %s", name, context.peer(), error)
    if isinstance(error, IdentityError):
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
    # The coordinator's own trouble, with paths that are nobody's business.
    await context.abort(grpc.StatusCode.INTERNAL, "the coordinator cannot sign; its log says why")
