"""Members and journal as plain values, for the store, and back."""

import base64
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedecado.common.records import contents
from fedecado.server.coordinator.journal import ClosedRound, Journal, Measurement, summarise
from fedecado.server.coordinator.members import Member, Members, Trouble
from fedecado.server.observe.observer import Window
from fedecado.server.store import Closed
from fedecado.v1 import session_pb2 as pb

MESSAGE_STORED = 500
"""Characters of a worker's last error that are stored."""

_COUNTS = (
    *("accepted", "refused", "failed", "enrolled", "seen"),
    *("last_round", "last_window", "last_seconds", "last_flow", "last_rate", "last_epochs"),
)


def dump_member(member: Member) -> dict[str, Any]:
    """One worker, without its session."""
    return {
        "hello": base64.b64encode(member.hello.SerializeToString()).decode(),
        "address": member.address,
        "curvature": member.curvature,
        "trouble": None if member.trouble is None else _trouble(member.trouble),
        **{name: getattr(member, name) for name in _COUNTS},
    }


def _trouble(trouble: Trouble) -> dict[str, Any]:
    """Without its traceback: there may be thousands of workers in trouble."""
    return {**contents(trouble), "message": trouble.message[:MESSAGE_STORED], "traceback": ""}


def dump_members(members: Members) -> list[dict[str, Any]]:
    """Everyone, in the order of their indices."""
    return [dump_member(member) for member in members.by_id.values()]


def note_member(member: Member) -> dict[str, Any]:
    """A worker's arrival as a note among the events."""
    return {"member": dump_member(member)}


def note_measurement(measurement: Measurement, *, best: bool) -> dict[str, Any]:
    """A measurement as a note among the events."""
    return {"measurement": contents(measurement), "best": best}


def load_members(stored: list[dict[str, Any]] | None, notes: list[dict[str, Any]]) -> Members:
    """Everyone as they were, none connected; indices follow from the order of first arrival."""
    members = Members()
    for entry in [*(stored or []), *(note["member"] for note in notes if "member" in note)]:
        hello = pb.Hello.FromString(base64.b64decode(entry["hello"]))
        known = members.by_id.get(hello.worker_id)
        index = len(members.by_id) if known is None else known.index
        member = Member(hello.worker_id, index, hello.role, hello, entry["address"])
        member.curvature = entry["curvature"]
        if entry.get("trouble") is not None:
            member.trouble = Trouble(**entry["trouble"])
        for name in _COUNTS:
            if name in entry:  # an older version may not have known it
                setattr(member, name, entry[name])
        members.by_id[member.id] = member
    return members


def dump_journal(journal: Journal) -> dict[str, Any]:
    """The newest rounds and measurements, and the counts; refers to what they hold, which does not change."""
    return {
        "rounds": [_plain(contents(closed)) for closed in journal.rounds],
        "measurements": [_plain(contents(m)) for m in journal.measurements],
        "best": None if journal.best is None else contents(journal.best),
        "accepted": journal.accepted,
        "refused": journal.refused,
        "started": journal.started,
        "windows": [contents(window) for window in journal.windows],
        "first_version": journal.first_version,
    }


def load_journal(
    stored: dict[str, Any] | None, notes: list[dict[str, Any]], replayed: Sequence[Closed], version: int
) -> Journal:
    """The journal as it was stored, and what happened since: notes, and rounds gone through again.

    `version` is the newest one now.
    """
    journal = Journal(first_version=version - sum(closed.report is not None for closed in replayed))
    if stored is not None:
        journal.rounds.extend(_closed_round(entry) for entry in stored["rounds"])
        journal.measurements.extend(Measurement(**entry) for entry in stored["measurements"])
        journal.best = None if stored["best"] is None else Measurement(**stored["best"])
        journal.accepted, journal.refused = stored["accepted"], stored["refused"]
        journal.started = stored["started"]
        journal.windows = tuple(Window(**entry) for entry in stored.get("windows", ()))
        journal.first_version = stored.get("first_version", 0)
    for note in notes:
        if "measurement" in note:
            measurement = Measurement(**note["measurement"])
            journal.measurements.append(measurement)
            journal.best = measurement if note["best"] else journal.best
    for closed in replayed:
        journal.accepted += len(closed.delivered)
        if closed.report is not None:
            delivered = list(closed.delivered)
            seen = summarise(closed.round, closed.version, delivered, closed.report, 0.0, 0.0)
            journal.rounds.append(replace(seen, closed=0.0))
    return journal


def _closed_round(entry: dict[str, Any]) -> ClosedRound:
    losses = {
        name: math.nan if entry[name] is None else entry[name] for name in ("loss_before", "loss_after")
    }
    return ClosedRound(**{**entry, **losses, "workers": tuple(entry["workers"])})


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN."""
    return {name: None if _is_nan(value) else value for name, value in entry.items()}


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
