"""Certificates that count no more: revoked ones and, on connections that outlive them, ended ones.

TLS looks at a certificate once, when a connection comes up. A worker's may stand for weeks, so everyone
who is connected is looked at again now and then; so is the file of the revocation list, which cannot tell
that it has changed.
"""

import asyncio
import logging
import time
from pathlib import Path
from typing import Any, final

from cryptography import x509

from fedecado.common.certificates import common_name
from fedecado.common.errors import ConfigError, IdentityError
from fedecado.common.revocation import FILE, read_revoked
from fedecado.server.coordinator.exclusion import end_session
from fedecado.server.coordinator.members import Member
from fedecado.server.coordinator.peers import Peer
from fedecado.server.coordinator.refusals import refused_session
from fedecado.server.coordinator.run import Run
from fedecado.v1 import session_pb2 as pb

log = logging.getLogger(__name__)


@final
class Guard:
    """Knows whose certificates are good."""

    def __init__(self, ca: Path, crl: Path | None = None) -> None:
        """With no list named, the one beside the authority's certificate counts, as soon as there is one."""
        self._ca, self._crl = ca, ca.with_name(FILE) if crl is None else crl
        if crl is not None and not crl.exists():
            raise ConfigError(f"there is no revocation list {crl}; `fedecado certs revoke` writes one")
        self._revoked: frozenset[int] = frozenset()
        self._stamp = _stamp(self._crl)
        if self._stamp is not None:
            self._revoked = read_revoked(self._crl, ca)

    def identify(self, context: Any) -> Peer:
        """Who calls; an IdentityError if the certificate is none or counts no more."""
        peer = _peer_of(context)
        if peer is None:
            raise IdentityError("you show no certificate; `fedecado certs issue` makes one")
        self.refresh()
        self._check(peer)
        return peer

    def refresh(self) -> None:
        """Read the list again if it has changed; a bad one changes nothing."""
        stamp = _stamp(self._crl)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        if stamp is None:
            log.error("%s is gone; the %d revocations in it stay in force", self._crl, len(self._revoked))
            return
        try:
            self._revoked = read_revoked(self._crl, self._ca)
            log.info("%s: %d certificates are revoked", self._crl, len(self._revoked))
        except ConfigError as error:
            log.error("the revocations of before stay in force: %s", error)

    async def watch(self, run: Run, interval: float) -> None:
        """End sessions whose certificates count no more, for as long as this is not cancelled."""
        while True:
            await asyncio.sleep(interval)
            self.refresh()
            for member in list(run.members.by_id.values()):
                self.look_at(run, member)

    def look_at(self, run: Run, member: Member) -> None:
        """End a member's session if it must not go on."""
        peer = None if member.session is None else member.session.peer
        if peer is None:
            return
        if peer.serial in self._revoked:
            log.warning("%s is cut off: its certificate is revoked", member.id)
            end_session(run, member, refused_session(_revoked(peer)))
        elif peer.ends < time.time():
            # Not a refusal: it may have a new one already, and comes back with it.
            log.info("%s has to come back: its certificate has ended", member.id)
            end_session(run, member, pb.CoordinatorBye(message="your certificate has ended; show a new one"))

    def _check(self, peer: Peer) -> None:
        if peer.serial in self._revoked:
            raise _revoked(peer)
        if peer.ends < time.time():
            raise IdentityError(f"the certificate of {peer.name!r} has ended; connect anew with a new one")


def _revoked(peer: Peer) -> IdentityError:
    return IdentityError(f"the certificate {peer.serial:x} of {peer.name!r} is revoked; ask for a new one")


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def _peer_of(context: Any) -> Peer | None:
    """The certificate behind a call; none on connections that show none."""
    shown = context.auth_context().get("x509_pem_cert")
    if not shown:
        return None
    certificate = x509.load_pem_x509_certificate(shown[0])
    return Peer(
        common_name(certificate), certificate.serial_number, certificate.not_valid_after_utc.timestamp()
    )
