"""Having versions measured by the evaluators, and knowing the best."""

import logging
from collections.abc import Callable
from typing import final

from fedecado.common.layout import Vector
from fedecado.common.logs import about
from fedecado.server.coordinator.evaluation import Evaluation
from fedecado.server.coordinator.facts import Facts
from fedecado.server.coordinator.journal import Measurement
from fedecado.server.coordinator.members import Member
from fedecado.server.coordinator.post import acknowledge, examination
from fedecado.v1 import session_pb2 as pb

log = logging.getLogger(__name__)

SaveBest = Callable[[int, Vector], None]


@final
class Judging:
    """Sends versions to evaluators and takes their answers in."""

    def __init__(self, every: int, run: Facts, save_best: SaveBest) -> None:
        self._evaluation, self._run, self._save_best = Evaluation(every), run, save_best

    @property
    def busy(self) -> bool:
        """Whether an answer is outstanding."""
        return self._evaluation.busy

    def publish(self, version: int, state: Vector) -> None:
        """A new version is there."""
        self._evaluation.publish(version, state, last=self._run.engine.finished is not None)
        for member in self._run.members.connected(trains=False):
            self.ask(member)

    def ask(self, member: Member) -> None:
        """Send an evaluator the newest version that is due, unless it is at work."""
        if member.session is not None and (due := self._evaluation.next(member.id)) is not None:
            member.session.send_parcel(examination(*due, member))
            self._run.journal.bytes_sent += due[2].nbytes

    def answered(self, member: Member, answer: pb.Evaluation) -> Measurement | None:
        """An evaluator's answer; none if it was not asked for."""
        acknowledge(member, answer.task_id, pb.Acknowledge.OUTCOME_ACCEPTED)
        taken = self._evaluation.take(member.id, answer)
        if taken is None:
            return None
        measurement, state = taken
        journal = self._run.journal
        journal.measurements.append(measurement)
        if journal.improves(measurement.metrics, self._run.engine.rules.target):
            journal.best = measurement
            self._save_best(measurement.version, state)
        words = ", ".join(f"{name} {value:.4g}" for name, value in measurement.metrics.items())
        found = about(worker=member.id, version=measurement.version, metrics=dict(measurement.metrics))
        log.info("version %d: %s", measurement.version, words, extra=found)
        return measurement

    def release(self, member: Member) -> None:
        """The evaluator went away or failed; it may be asked again."""
        self._evaluation.release(member.id)
