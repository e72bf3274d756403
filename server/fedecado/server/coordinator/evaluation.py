"""Who measures which version.

Each evaluator measures one version at a time and then the newest one due, so a slow evaluator skips
versions instead of falling behind. Answers of several evaluators about one version are averaged by
their sample counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedecado.common.layout import Vector
from fedecado.server.coordinator.journal import Measurement
from fedecado.v1 import session_pb2 as pb

FIRST_ID = 1 << 62
"""Evaluations are numbered from here, training tasks from 1: the two never meet."""

VERSIONS_KEPT = 100
"""Versions whose partial averages are kept for evaluators still at work."""


@dataclass(slots=True)
class _Average:
    samples: int = 0
    metrics: dict[str, float] = field(default_factory=dict)

    def add(self, metrics: Mapping[str, float], samples: int) -> None:
        weight = max(1, samples)
        total = self.samples + weight
        for name, value in metrics.items():
            old = self.metrics.get(name, value)
            self.metrics[name] = old + (value - old) * weight / total
        self.samples = total


class Evaluation:
    """The versions due, and what is under way."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._due: tuple[int, Vector] | None = None
        self._next_id = FIRST_ID
        self._working: dict[str, tuple[int, int, Vector]] = {}
        self._seen: dict[str, int] = {}
        self._averages: dict[int, _Average] = {}

    @property
    def busy(self) -> bool:
        """Whether an answer is outstanding."""
        return bool(self._working)

    def publish(self, version: int, state: Vector, *, last: bool = False) -> None:
        """A new version exists; every k-th and the last are due."""
        if last or version % self._every == 0:
            self._due = version, state

    def next(self, evaluator: str) -> tuple[int, int, Vector] | None:
        """Task id, version and state for a free evaluator, if there is something new for it."""
        if self._due is None or evaluator in self._working or self._seen.get(evaluator, -1) >= self._due[0]:
            return None
        version, state = self._due
        task, self._next_id = self._next_id, self._next_id + 1
        self._working[evaluator] = task, version, state
        self._seen[evaluator] = version
        return self._working[evaluator]

    def take(self, evaluator: str, answer: pb.Evaluation) -> tuple[Measurement, Vector] | None:
        """The version's metrics with this answer counted in; None if it was not asked for."""
        working = self._working.get(evaluator)
        if working is None or working[0] != answer.task_id:
            return None
        _, version, state = self._working.pop(evaluator)
        average = self._averages.setdefault(version, _Average())
        average.add(dict(answer.metrics), answer.samples)
        while len(self._averages) > VERSIONS_KEPT:
            del self._averages[min(self._averages)]
        return Measurement(version, dict(sorted(average.metrics.items()))), state

    def release(self, evaluator: str) -> None:
        """The evaluator went away; it may be asked again about what it did not answer."""
        if self._working.pop(evaluator, None) is not None:
            self._seen.pop(evaluator, None)
