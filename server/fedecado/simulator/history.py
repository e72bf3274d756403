"""What a run leaves behind: a record per round, as JSON or Parquet."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedecado.common.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One closed round."""

    round: int
    clock: float
    """Virtual seconds since the start."""
    time: float
    """Simulated time: the sum of the windows T so far."""
    updates: int
    staleness: float
    """Mean number of versions by which the updates' starts were behind."""
    rate: float
    """‖dx_c/dt‖."""
    loss_before: float
    loss_after: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, float] = field(default_factory=dict)
    traffic: int = 0
    """Bytes of vectors sent either way since the start."""


@dataclass(slots=True)
class History:
    """A run's settings, its rounds and how it ended."""

    settings: dict[str, Any] = field(default_factory=dict)
    rounds: list[RoundRecord] = field(default_factory=list)
    ended: str = ""
    seconds: float = 0.0
    """Real seconds that the simulation took."""
    walls: list[float] = field(default_factory=list)
    """Real seconds from the start to the end of each round; kept apart from what a seed determines."""

    def metrics(self) -> dict[str, float]:
        """The latest value of every metric."""
        latest: dict[str, float] = {}
        for record in self.rounds:
            latest.update(record.metrics)
        return latest

    def series(self, metric: str) -> tuple[list[int], list[float]]:
        """Rounds and values of a metric where it was measured."""
        found = [(r.round, r.metrics[metric]) for r in self.rounds if metric in r.metrics]
        return [number for number, _ in found], [value for _, value in found]

    def to_json(self) -> str:
        """The whole record; the latest metrics stand at the top."""
        whole = {
            **self.metrics(),
            "rounds": len(self.rounds),
            "ended": self.ended,
            "seconds": round(self.seconds, 3),
            "walls": [round(wall, 3) for wall in self.walls],
            "settings": self.settings,
            "history": [asdict(record) for record in self.rounds],
        }
        return json.dumps(plain(whole), allow_nan=False)

    def save(self, path: Path) -> None:
        """Write JSON or Parquet, by the file's ending."""
        path.parent.mkdir(parents=True, exist_ok=True)
        match path.suffix:
            case ".json":
                path.write_text(self.to_json() + "\n", encoding="utf-8")
            case ".parquet":
                self._save_parquet(path)
            case other:
                raise ConfigError(
                    f"results cannot be written as {other or path.name!r}; use .json or .parquet"
                )

    def _save_parquet(self, path: Path) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as error:
            raise ConfigError("Parquet needs pyarrow; install fedecado[report] or write .json") from error
        rows = [
            {
                **{k: v for k, v in asdict(record).items() if not isinstance(v, dict)},
                **{f"metric.{k}": v for k, v in record.metrics.items()},
                **{f"detail.{k}": v for k, v in record.details.items()},
            }
            for record in self.rounds
        ]
        columns = {
            name: [row.get(name) for row in rows] for name in dict.fromkeys(k for row in rows for k in row)
        }
        about = {b"fedecado": json.dumps(plain({"settings": self.settings, "ended": self.ended})).encode()}
        pq.write_table(pa.table(columns).replace_schema_metadata(about), path)


def plain(value: Any) -> Any:
    """JSON has no NaN or infinity: NaN becomes null, infinity a word."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return str(value) if isinstance(value, Path) else value
