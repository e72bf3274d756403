"""Ending a worker's session on an operator's word: for now (`drop`), or until further notice (`ban`)."""

import logging

from google.protobuf.message import Message

from fedecado.common.logs import about
from fedecado.server.coordinator.members import Member
from fedecado.server.coordinator.run import Run
from fedecado.server.rounds import Banned, Unbanned
from fedecado.v1 import session_pb2 as pb

log = logging.getLogger(__name__)


def drop(run: Run, worker: str, reason: str) -> None:
    """End a session now; the worker keeps what it holds and may come back at once."""
    member = run.members.by_id.get(worker)
    if member is not None:
        log.warning("%s is dropped: %s", worker, reason, extra=about(worker=worker))
        end_session(run, member, pb.CoordinatorBye(message=f"dropped: {reason}"))


def ban(run: Run, worker: str, reason: str) -> None:
    """Shut a worker out of the run: its flow leaves the balance, and it is refused from now on."""
    log.warning("%s is banned: %s", worker, reason, extra=about(worker=worker))
    run.handle(Banned(worker, reason))
    member = run.members.by_id.get(worker)
    if member is not None:
        end_session(run, member, refusal(worker, reason))


def unban(run: Run, worker: str) -> None:
    """Let a worker come back, as one that is new."""
    log.warning("%s is no longer banned", worker, extra=about(worker=worker))
    run.handle(Unbanned(worker))


def refusal(worker: str, reason: str) -> pb.Refused:
    """What a banned worker is told."""
    text = f"{worker!r} is banned from this run: {reason}; `fedecado unban {worker}` would let it back in"
    return pb.Refused(reason=pb.Refused.REASON_IDENTITY, message=text, retry=False)


def end_session(run: Run, member: Member, last_word: Message) -> None:
    """Close a member's session, if it has one; what it still sends is not looked at."""
    if member.session is not None:
        member.session.close(last_word)
        run.left(member)
