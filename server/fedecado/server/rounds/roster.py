"""The enrolled clients: their weights, and who is free to work."""

from dataclasses import dataclass

from fedecado.common.errors import RoundError


@dataclass(slots=True)
class Client:
    """One enrolled client as the engine sees it."""

    samples: int
    connected: bool = True
    task: int | None = None
    """The task it works on, or that it may still deliver after a break."""
    last_done: int = -1
    """The newest task whose update counted; task ids only grow, so older ones are duplicates."""


class Roster:
    """Enrolled clients by id; the free ones (connected, without a task) are kept at hand."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.free: set[str] = set()
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
        self._samples -= self.clients.pop(client).samples

    def occupy(self, client: str, task: int | None) -> None:
        """Note what the client works on; none frees it."""
        self[client].task = task
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
        if record.connected and record.task is None:
            self.free.add(client)
        else:
            self.free.discard(client)
