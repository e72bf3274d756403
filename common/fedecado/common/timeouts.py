"""Every time limit of the network side, all derived from one: how soon a lost peer must be noticed."""

from dataclasses import dataclass

from fedecado.common.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Timeouts:
    """`peer_loss` is the one to choose; the others follow from it."""

    peer_loss: float = 15.0
    """A dead peer or a cut line is noticed within so many seconds."""

    def __post_init__(self) -> None:
        if not 0.1 <= self.peer_loss <= 3600:
            raise ConfigError(f"peer_loss is {self.peer_loss!r}; it must be between 0.1 and 3600 seconds")

    @property
    def keepalive(self) -> float:
        """Silence after which a peer is pinged."""
        return self.peer_loss / 3

    @property
    def keepalive_answer(self) -> float:
        """Time to answer a ping."""
        return self.peer_loss / 3

    @property
    def answer(self) -> float:
        """Time for a short answer: a Hello, a Welcome, a connection, an administrative call."""
        return self.peer_loss

    @property
    def stall(self) -> float:
        """Longest pause within a transfer, in either direction."""
        return 2 * self.peer_loss

    @property
    def drain(self) -> float:
        """Time to bring an orderly shutdown to its end."""
        return self.peer_loss

    @property
    def reconnect(self) -> float:
        """First pause before a new connection; doubles with every failure."""
        return self.peer_loss / 150

    @property
    def reconnect_most(self) -> float:
        """Longest such pause."""
        return self.peer_loss / 3

    @property
    def first_model(self) -> float:
        """Time for a worker to send the model to start from; then another one is asked, too."""
        return 8 * self.peer_loss

    @property
    def last_look(self) -> float:
        """Longest wait for the evaluators' answers about the last version."""
        return 20 * self.peer_loss
