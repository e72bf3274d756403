"""The enrolled clients: their weights, and who can be asked."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from fedecado.common.errors import RoundError


@dataclass(slots=True)
class Client:
    """One enrolled client as the engine sees it."""

    samples: int
    connected: bool = True
    task: int | None = None
    """The task it works on, or that it may still deliver after a break."""
    last_done: int | None = None
    """The newest task whose update counted. A client has one open task at a time, so only this one can
    honestly be sent again."""


class Roster:
    """Enrolled clients by id; those who can be asked now are kept sorted, so that a seeded draw from
    them depends on nothing else and costs no sorting."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.idle: list[str] = []
        """Connected, without a task and not asked in this round."""
        self.asked: dict[str, int] = {}
        """The last task that a client had in the open round, or the rest after it; it is not asked again."""
        self.connected = 0
        self._samples = 0

    def __len__(self) -> int:
        return len(self.clients)

    def __contains__(self, client: str) -> bool:
        return client in self.clients

    def __getitem__(self, client: str) -> Client:
        try:
            return self.clients[client]
        except KeyError:
            raise RoundError(f"client {client!r} is not enrolled; it must say hello first") from None

    def enrol(self, client: str, samples: int) -> None:
        """Add a client, or bring one back with the sample count it has now."""
        if samples < 1:
            raise RoundError(f"client {client!r} has {samples} samples; it needs at least one")
        known = self.clients.setdefault(client, Client(samples=0, connected=False))
        self._samples += samples - known.samples
        known.samples = samples
        self._connect(client, True)

    def disconnect(self, client: str) -> None:
        self._connect(client, False)

    def remove(self, client: str) -> None:
        self._connect(client, False)
        self.asked.pop(client, None)
        self._samples -= self.clients.pop(client).samples

    def occupy(self, client: str, task: int | None) -> None:
        """Note what the client works on; none frees it."""
        self[client].task = task
        self._refresh(client)

    def ask(self, client: str, turn: int, task: int | None) -> None:
        """Note that the client had its turn in this round, and what it works on."""
        self.asked[client] = turn
        self.occupy(client, task)

    def ask_again(self, client: str) -> None:
        """Let the client have another turn in this round."""
        self.asked.pop(client, None)
        self._refresh(client)

    def start_round(self, asked: Mapping[str, int]) -> None:
        """Let everyone have a turn but those whose updates the round already holds."""
        before, self.asked = self.asked, dict(asked)
        for client in before.keys() | asked.keys():
            self._refresh(client)

    def weight(self, client: str) -> float:
        """w_i: the client's samples over the mean of all enrolled clients."""
        return self[client].samples * len(self.clients) / self._samples

    def _connect(self, client: str, connected: bool) -> None:
        record = self[client]
        self.connected += connected - record.connected
        record.connected = connected
        self._refresh(client)

    def _refresh(self, client: str) -> None:
        record = self.clients[client]
        idle = record.connected and record.task is None and client not in self.asked
        at = bisect_left(self.idle, client)
        listed = at < len(self.idle) and self.idle[at] == client
        if idle and not listed:
            self.idle.insert(at, client)
        elif listed and not idle:
            del self.idle[at]
