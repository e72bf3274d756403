"""What one generator process is to do, as plain values that travel as JSON."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, Self, get_args

from fedecado.common.errors import ConfigError
from fedecado.common.tls import TlsFiles

Mischief = Literal["nan", "damaged", "garbage", "stalling", "silent", "wrong-model"]
MISCHIEF: tuple[Mischief, ...] = get_args(Mischief)


@dataclass(frozen=True, slots=True)
class TlsPattern:
    """Where each worker's files lie; `{id}` stands for its id, which its certificate must carry."""

    ca: str
    certificate: str
    key: str

    def files(self, worker: str) -> TlsFiles:
        return TlsFiles(
            *(Path(text.replace("{id}", worker)) for text in (self.ca, self.certificate, self.key))
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """A share of a load test: workers `first` to `first + count - 1`.

    `bad` gives the mischief of the workers by number; all others are honest.
    """

    target: str
    first: int
    count: int
    peer_loss: float = 15.0
    tls: TlsPattern | None = None
    prefix: str = "load"
    seed: int = 0
    parameters: int = 25_000
    training: str = "lognormal:5,0.5"
    stragglers: float = 0.0
    straggler_factor: float = 10.0
    dropouts: float = 0.0
    away: float = 10.0
    storm_every: float | None = None
    storm_share: float = 1.0
    connect_rate: float = 200.0
    bad: dict[int, Mischief] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        raw = json.loads(text)
        raw["tls"] = None if raw["tls"] is None else TlsPattern(**raw["tls"])
        raw["bad"] = {int(number): what for number, what in raw["bad"].items()}
        return cls(**raw)

    def worker_id(self, number: int) -> str:
        return f"{self.prefix}-{number}"


def deal_mischief(counts: dict[str, int], first: int, workers: int) -> dict[int, Mischief]:
    """Who of the workers from `first` on misbehaves, and how; the last ones do."""
    wrong = [name for name in counts if name not in MISCHIEF]
    if wrong:
        raise ConfigError(f"no bad actor is called {wrong[0]!r}; there are {', '.join(MISCHIEF)}")
    dealt = [name for name in MISCHIEF for _ in range(counts.get(name, 0))]
    if len(dealt) >= workers:
        raise ConfigError(f"{len(dealt)} bad actors leave no honest one of {workers} workers; lower them")
    return dict(zip(range(first + workers - len(dealt), first + workers), dealt, strict=True))
