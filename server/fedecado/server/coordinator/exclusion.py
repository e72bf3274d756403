"""Ending a worker's session on an operator's word."""

import logging

from google.protobuf.message import Message

from fedecado.common.logs import about
from fedecado.server.coordinator.members import Member
from fedecado.server.coordinator.run import Run
from fedecado.v1 import session_pb2 as pb

log = logging.getLogger(__name__)


def drop(run: Run, worker: str, reason: str) -> None:
    """End a session now; the worker keeps what it holds and may come back at once."""
    member = run.members.by_id.get(worker)
    if member is not None:
        log.warning("%s is dropped: %s", worker, reason, extra=about(worker=worker))
        end_session(run, member, pb.CoordinatorBye(message=f"dropped: {reason}"))


def end_session(run: Run, member: Member, last_word: Message) -> None:
    """Close a member's session, if it has one; what it still sends is not looked at."""
    if member.session is not None:
        member.session.close(last_word)
        run.left(member)
