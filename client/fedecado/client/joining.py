"""How a worker without a certificate gets in: it shows its token and gets one."""

import asyncio
import logging
import random
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import grpc

from fedecado.client.credential import AUTHORITY, Credential, first_key, keep, signing_request
from fedecado.client.pace import Backoff, Pace
from fedecado.client.running import signals
from fedecado.common.errors import ConfigError, IdentityError
from fedecado.common.invitation import read_invitation
from fedecado.common.private_files import write_private
from fedecado.common.timeouts import Timeouts
from fedecado.common.tls import ServerTrust
from fedecado.common.transport import open_async_channel
from fedecado.v1 import enrol_pb2 as pb
from fedecado.v1.enrol_pb2_grpc import EnrolServiceStub

logger = logging.getLogger(__name__)

_PASSING = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INTERNAL,
)
"""What another try may overcome."""


@dataclass(frozen=True, slots=True)
class Door:
    """Where to enrol, and with what."""

    target: str
    token_file: Path | None
    ca: Path | None = None
    """The authority's certificate, for token files that hold none."""


def join(door: Door, folder: Path, wanted: str, timeouts: Timeouts) -> Credential | None:
    """The certificate in the folder or, with the token, a first one; None if a signal came before."""
    credential = Credential.load(folder)
    if credential is None:
        credential = asyncio.run(_enrol(door, folder, wanted, timeouts))
    if credential is not None and wanted not in ("", credential.worker_id):
        raise ConfigError(
            f"the certificate in {folder} is for {credential.worker_id!r}, worker.id says {wanted!r}; "
            "give each worker a join.folder of its own"
        )
    return credential


async def _enrol(door: Door, folder: Path, wanted: str, timeouts: Timeouts) -> Credential | None:
    if door.token_file is None:
        raise ConfigError(
            f"there is no certificate in {folder} that has not ended; set join.token_file to a file made "
            "with `fedecado tokens create`"
        )
    invitation = read_invitation(door.token_file, door.ca)
    key = first_key(folder)
    # Trust is settled before the first byte is sent: from now on this is the worker's authority.
    write_private(folder / AUTHORITY, invitation.authority)
    request = pb.EnrolRequest(token=invitation.token, csr=signing_request(key), worker_id=wanted)
    stopping, backoff, pace = asyncio.Event(), Backoff(random.Random()), Pace.of(timeouts)
    with signals(stopping):
        while not stopping.is_set():
            try:
                answer = await _ask(door.target, folder, request, timeouts)
            except grpc.aio.AioRpcError as error:
                pause = backoff.pause(pace, stood=0.0)
                logger.warning("%s; next try in %.2f s", _explained(error, door.target), pause)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await stopping.wait()
                continue
            logger.info("enrolled as %s", answer.worker_id)
            return keep(folder, key, answer.certificate)
    return None


async def _ask(target: str, folder: Path, request: pb.EnrolRequest, timeouts: Timeouts) -> pb.EnrolResponse:
    async with open_async_channel(target, timeouts, ServerTrust(folder / AUTHORITY)) as channel:
        try:
            return await EnrolServiceStub(channel).Enrol(request, timeout=timeouts.answer)
        except grpc.aio.AioRpcError as error:
            if error.code() in _PASSING:
                raise
            # Another try would end the same way.
            text = f"{target} does not enrol this worker: {error.details()}"
    raise IdentityError(text)


def _explained(error: grpc.aio.AioRpcError, target: str) -> str:
    details = (error.details() or "").rpartition("last error: ")[2]
    return f"not enrolled at {target}: {error.code().name.lower().replace('_', ' ')}: {details}"
