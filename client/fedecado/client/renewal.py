"""A worker's certificate is replaced by a new one, with a new key, before it ends.

The connection of the moment stays as it is. The next one shows the new certificate, at the latest when the
coordinator ends this one because the old certificate has ended.
"""

import logging
import time
from asyncio import sleep
from typing import Final

import grpc

from fedecado.client.credential import Credential, keep, new_key, signing_request
from fedecado.common.errors import FedecadoError
from fedecado.common.timeouts import Timeouts
from fedecado.common.transport import open_async_channel
from fedecado.v1 import enrol_pb2 as pb
from fedecado.v1.enrol_pb2_grpc import EnrolServiceStub

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 3600.0
"""Longest wait without a look at the clock, which may be set, or stand still with the machine."""


async def keep_fresh(credential: Credential, target: str, timeouts: Timeouts) -> None:
    """Renew a certificate again and again, for as long as this is not cancelled."""
    wait = 0.0
    while True:
        await sleep(min(LOOK_SECONDS, max(wait, credential.due - time.time())))
        if time.time() < credential.due:
            continue
        # A failure leaves a third of the life for more tries; a success is not followed by another at once.
        wait = timeouts.reconnect_most
        try:
            credential = await renew(credential, target, timeouts)
            logger.info("the certificate is renewed; the new one is good for %.1f h", _hours(credential))
        except (grpc.aio.AioRpcError, FedecadoError, OSError) as error:
            wait = max(wait, (credential.ends - time.time()) / 10)
            said = error.details() if isinstance(error, grpc.aio.AioRpcError) else error
            logger.warning(
                "the certificate could not be renewed (%s); it is good for %.1f h; next try in %.0f s",
                *(said, _hours(credential), wait),
            )


async def renew(credential: Credential, target: str, timeouts: Timeouts) -> Credential:
    """One renewal: the old certificate says who asks, the new key is proven by the request."""
    key = new_key()
    async with open_async_channel(target, timeouts, credential.tls) as channel:
        request = pb.RenewRequest(csr=signing_request(key))
        answer = await EnrolServiceStub(channel).Renew(request, timeout=timeouts.answer)
    return keep(credential.folder, key, answer.certificate)


def _hours(credential: Credential) -> float:
    return max(0.0, credential.ends - time.time()) / 3600
