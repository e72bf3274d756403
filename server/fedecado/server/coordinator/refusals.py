"""Errors as the wire names them."""

from typing import Final

from fedecado.common.errors import (
    ChecksumError,
    FedecadoError,
    FormatError,
    IdentityError,
    LayoutError,
    NonFiniteError,
    NormError,
    NumericsError,
    ProtocolError,
    QuotaError,
    VersionError,
)
from fedecado.v1 import session_pb2 as pb

_RESULTS: tuple[tuple[type[FedecadoError], "pb.Acknowledge.Reason.ValueType"], ...] = (
    (LayoutError, pb.Acknowledge.REASON_LAYOUT),
    (FormatError, pb.Acknowledge.REASON_FORMAT),
    (NonFiniteError, pb.Acknowledge.REASON_NON_FINITE),
    (NumericsError, pb.Acknowledge.REASON_INVALID),
    (ChecksumError, pb.Acknowledge.REASON_DAMAGED),
    (ProtocolError, pb.Acknowledge.REASON_DAMAGED),
)
_SESSIONS: tuple[tuple[type[FedecadoError], "pb.Refused.Reason.ValueType"], ...] = (
    (IdentityError, pb.Refused.REASON_IDENTITY),
    (VersionError, pb.Refused.REASON_PROTOCOL_VERSION),
    (LayoutError, pb.Refused.REASON_LAYOUT),
    (ProtocolError, pb.Refused.REASON_BAD_MESSAGE),
)


def refused_result(error: FedecadoError) -> "pb.Acknowledge.Reason.ValueType":
    """Why a result is not taken."""
    return next((r for kind, r in _RESULTS if isinstance(error, kind)), pb.Acknowledge.REASON_INVALID)


def refused_session(error: FedecadoError) -> pb.Refused:
    """Why a session cannot go on; trying again helps only where a quota was exceeded."""
    if isinstance(error, QuotaError):
        after = error.retry_after
        return pb.Refused(
            reason=pb.Refused.REASON_FULL,
            message=str(error),
            retry=after is not None,
            retry_after_seconds=after or 0.0,
        )
    reason = next((r for kind, r in _SESSIONS if isinstance(error, kind)), pb.Refused.REASON_BAD_MESSAGE)
    return pb.Refused(reason=reason, message=str(error), retry=False)


BANNED: Final = "banned"
"""The wire has no word for it: a banned worker is told that its identity is refused, and why."""
SESSION_REASONS: Final = (
    *(name.removeprefix("REASON_").lower() for name in pb.Refused.Reason.keys()[1:]),
    BANNED,
)
"""Why sessions are refused, as metrics name it."""


def session_label(refused: pb.Refused) -> str:
    """The wire's reason as metrics name it."""
    return pb.Refused.Reason.Name(refused.reason).removeprefix("REASON_").lower()


def label(error: FedecadoError) -> str:
    """The reason as metrics name it: the wire's, or one that the wire has no word for."""
    if isinstance(error, NormError):
        return "norm"
    return pb.Acknowledge.Reason.Name(refused_result(error)).removeprefix("REASON_").lower()
