"""The round engine: which client trains what, and when a round closes.

A plain synchronous state machine with no vectors, no network and no clock. Events go in
(`events`), effects come out (`effects`), and whoever drives it (the simulator, the coordinator,
a test, a replay) carries the effects out. The same events in the same order give the same effects.
"""

from fedecado.common.target import Target
from fedecado.server.rounds.effects import (
    Accept,
    Assign,
    Cancel,
    CloseRound,
    DropVersion,
    Effect,
    Finish,
    Refuse,
    StartTimer,
)
from fedecado.server.rounds.engine import Engine
from fedecado.server.rounds.events import (
    Aggregated,
    Banned,
    DeadlinePassed,
    Discarded,
    Disconnected,
    Enrolled,
    Event,
    LeaseExpired,
    Left,
    Measured,
    Paused,
    Resumed,
    Stopped,
    TaskFailed,
    Unbanned,
    UpdateArrived,
)
from fedecado.server.rounds.rules import Rules
from fedecado.server.rounds.snapshot import timers
from fedecado.server.rounds.waiting import describe

__all__ = [
    "Accept",
    "Aggregated",
    "Assign",
    "Banned",
    "Cancel",
    "CloseRound",
    "DeadlinePassed",
    "Discarded",
    "Disconnected",
    "DropVersion",
    "Effect",
    "Engine",
    "Enrolled",
    "Event",
    "Finish",
    "LeaseExpired",
    "Left",
    "Measured",
    "Paused",
    "Refuse",
    "Resumed",
    "Rules",
    "StartTimer",
    "Stopped",
    "Target",
    "TaskFailed",
    "Unbanned",
    "UpdateArrived",
    "describe",
    "timers",
]
