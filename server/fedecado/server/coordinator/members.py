"""Everyone who ever said hello to this run, for decisions and for people."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fedecado.common.errors import ProtocolError
from fedecado.v1 import session_pb2 as pb

if TYPE_CHECKING:
    from fedecado.server.coordinator.quotas import Bucket
    from fedecado.server.coordinator.session import Session
    from fedecado.server.observe.observer import Window


DISTRUSTED: Final = "Distrusted"
"""Kind of trouble of clients whom `robust.response_bound` does not believe."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """The last thing that went wrong with a worker."""

    at: float
    task: int
    kind: str
    message: str
    traceback: str = ""


@dataclass(slots=True)
class Member:
    """One worker, connected or not."""

    id: str
    index: int
    role: "pb.Role.ValueType"
    hello: pb.Hello
    address: str = ""
    enrolled: float = field(default_factory=time.time)
    seen: float = field(default_factory=time.time)
    session: "Session | None" = None
    curvature: float = 0.0
    progress: pb.Progress | None = None
    task_since: float = 0.0
    accepted: int = 0
    refused: int = 0
    failed: int = 0
    last_round: int = 0
    last_window: float = 0.0
    last_seconds: float = 0.0
    last_rate: float | None = None
    """Mean learning rate of its last update, by what the window's length says."""
    last_epochs: float | None = None
    last_flow: float | None = None
    """RMS of its flow I_i; none until it has one."""
    trouble: Trouble | None = None
    visits: "Bucket | None" = None
    """How often it may connect."""

    @property
    def trains(self) -> bool:
        return self.role == pb.ROLE_TRAINER

    def note_update(self, header: pb.Update) -> None:
        """Remember how it trained: T_i is the sum of eta / w_i over its steps."""
        self.last_window, self.last_seconds = header.window, header.training_seconds
        self.last_rate = header.window * header.weight / header.steps if header.steps else None
        self.last_epochs = header.samples_seen / self.hello.samples if header.samples_seen else None

    def blame(self, kind: str, message: str, *, task: int = 0, traceback: str = "") -> None:
        """Remember what went wrong."""
        self.trouble = Trouble(time.time(), task, kind, message, traceback)


class Members:
    """Workers by id; an index once given stays."""

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}

    def admit(self, hello: pb.Hello, session: "Session", address: str) -> Member:
        """The member behind a Hello, new or known, now with this session."""
        member = self.by_id.get(hello.worker_id)
        if member is None:
            member = Member(hello.worker_id, len(self.by_id), hello.role, hello)
            self.by_id[hello.worker_id] = member
        elif member.role != hello.role:
            raise ProtocolError(
                f"worker {hello.worker_id!r} is enrolled with another role; give it another id"
            )
        member.hello, member.session, member.address, member.seen = hello, session, address, time.time()
        if hello.HasField("curvature"):
            member.curvature = hello.curvature
        return member

    def note_flows(self, windows: Iterable["Window"]) -> None:
        """Remember how strong the flows of a closed round are."""
        for window in windows:
            if (member := self.by_id.get(window.worker)) is not None:
                member.last_flow = window.flow

    def distrust(self, workers: Iterable[str]) -> list[str]:
        """Note who was not believed in a closed round; those for whom that is news."""
        news = []
        for member in (self.by_id[worker] for worker in sorted(workers) if worker in self.by_id):
            if member.trouble is None or member.trouble.kind != DISTRUSTED:
                news.append(member.id)
            member.blame(
                DISTRUSTED, "it does not follow its flow; the others' mean counts instead of its update"
            )
        return news

    def connected(self, *, trains: bool) -> list[Member]:
        """Members with a session, in order of their indices."""
        return [m for m in self.by_id.values() if m.session is not None and m.trains == trains]
