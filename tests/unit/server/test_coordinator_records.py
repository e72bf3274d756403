"""What a coordinator remembers: members, rounds, measurements; and how errors are named on the wire."""

import json
import math

import pytest

from fedecado.common import errors
from fedecado.server.algorithms import Report
from fedecado.server.coordinator.evaluation import FIRST_ID, Evaluation
from fedecado.server.coordinator.journal import ClosedRound, Journal, Measurement, summarise
from fedecado.server.coordinator.members import Members
from fedecado.server.coordinator.memory import dump_journal, load_journal
from fedecado.server.coordinator.refusals import refused_result, refused_session
from fedecado.server.federation import Result
from fedecado.server.observe.observer import Window
from fedecado.server.rounds import Target
from fedecado.server.store.codec import to_json
from fedecado.v1 import session_pb2 as pb

NAN = math.nan


def hello(name: str, **fields: object) -> pb.Hello:
    return pb.Hello(worker_id=name, role=pb.ROLE_TRAINER, **fields)  # type: ignore[arg-type]  # any field


class TestMembers:
    def test_an_index_once_given_stays(self) -> None:
        members = Members()
        first = members.admit(hello("a"), object(), "x")  # type: ignore[arg-type]  # no session needed
        members.admit(hello("b"), object(), "y")  # type: ignore[arg-type]
        first.session = None
        again = members.admit(hello("a", samples=5), object(), "z")  # type: ignore[arg-type]
        assert again is first
        assert (again.index, again.address, again.hello.samples) == (0, "z", 5)

    def test_a_known_worker_cannot_change_its_role(self) -> None:
        members = Members()
        members.admit(hello("a"), object(), "x")  # type: ignore[arg-type]
        judge = pb.Hello(worker_id="a", role=pb.ROLE_EVALUATOR)
        with pytest.raises(errors.ProtocolError, match="give it another id"):
            members.admit(judge, object(), "x")  # type: ignore[arg-type]

    def test_only_those_with_a_session_are_connected(self) -> None:
        members = Members()
        members.admit(hello("a"), object(), "x")  # type: ignore[arg-type]
        members.admit(hello("b"), object(), "x").session = None  # type: ignore[arg-type]
        assert [member.id for member in members.connected(trains=True)] == ["a"]
        assert members.connected(trains=False) == []

    def test_a_curvature_is_kept_when_a_later_hello_has_none(self) -> None:
        members = Members()
        members.admit(hello("a", curvature=2.0), object(), "x")  # type: ignore[arg-type]
        assert members.admit(hello("a"), object(), "x").curvature == 2.0  # type: ignore[arg-type]


class TestJournal:
    @pytest.mark.parametrize(
        ("target", "better", "worse"),
        [
            (None, {"accuracy": 0.9, "loss": 9.0}, {"accuracy": 0.8, "loss": 0.1}),
            (None, {"loss": 0.1}, {"loss": 0.2}),
            ("error<=0.1", {"error": 0.3, "accuracy": 0.1}, {"error": 0.4, "accuracy": 0.9}),
            ("f1>=0.9", {"f1": 0.5, "accuracy": 0.1}, {"f1": 0.4, "accuracy": 0.9}),
        ],
    )
    def test_the_best_is_by_the_target_or_else_accuracy_or_else_loss(
        self, target: str | None, better: dict[str, float], worse: dict[str, float]
    ) -> None:
        journal, wanted = Journal(), None if target is None else Target.parse(target)
        assert journal.improves(worse, wanted)
        journal.best = Measurement(1, worse)
        assert journal.improves(better, wanted)
        journal.best = Measurement(2, better)
        assert not journal.improves(worse, wanted)
        assert not journal.improves(better, wanted), "an equal one does not replace it"

    def test_metrics_without_a_score_are_never_the_best(self) -> None:
        assert not Journal().improves({"perplexity": 3.0}, None)

    def test_nan_is_never_the_best(self) -> None:
        journal = Journal()
        assert not journal.improves({"accuracy": NAN}, None)

    def test_the_newest_measurement_of_a_version_counts(self) -> None:
        journal = Journal()
        journal.measurements.extend([Measurement(1, {"a": 1}), Measurement(1, {"a": 2}), Measurement(2, {})])
        found = journal.measurement(1)
        assert found is not None and found.metrics == {"a": 2}
        assert journal.measurement(3) is None
        assert journal.latest is journal.measurements[-1]

    def test_a_round_is_summed_up_over_the_losses_that_were_sent(self) -> None:
        import numpy as np

        def result(before: float, after: float) -> Result:
            return Result(np.zeros(1), 1.0, loss_before=before, loss_after=after)

        delivered = [("a", result(3.0, 1.0)), ("b", result(NAN, NAN)), ("c", result(5.0, 2.0))]
        closed = summarise(4, 4, delivered, Report(3, time=0.5, rate=0.1), 0.01, opened=1.0)
        assert closed.workers == ("a", "b", "c")
        assert (closed.loss_before, closed.loss_after) == (4.0, 1.5)
        nobody = summarise(4, 4, delivered[1:2], Report(1, time=0.5, rate=0.1), 0.01, opened=1.0)
        assert math.isnan(nobody.loss_after)

    def test_it_comes_back_from_a_checkpoint_for_which_nothing_was_copied(self) -> None:
        """A copy of a thousand rounds of a thousand names would hold the event loop up for half a second."""
        journal = Journal(accepted=7, refused=1)
        names = tuple(f"w{i}" for i in range(3))
        closed = ClosedRound(1, 1, 0.5, 1.5, names, 0.2, 0.1, 0.01, NAN, 1.5, {"steps": 1.0})
        journal.add_round(closed, (Window("w0", 0.2, 1),), late=True)
        journal.measurements.append(Measurement(1, {"accuracy": 0.5}))
        journal.best = journal.latest
        content = dump_journal(journal)
        assert content["rounds"][0]["workers"] is names
        again = load_journal(json.loads(to_json(content)), [], (), 1)
        assert again.rounds[0].workers == names
        assert math.isnan(again.rounds[0].loss_before)
        assert (again.rounds[0].late, again.rounds[0].stale, again.windows) == (True, 1, journal.windows)
        assert (again.measurements, again.best) == (journal.measurements, journal.best)
        assert (again.accepted, again.refused) == (7, 1)


class TestEvaluation:
    def answer(self, task: int, samples: int = 1, **metrics: float) -> pb.Evaluation:
        return pb.Evaluation(task_id=task, metrics=metrics, samples=samples)

    def publish(self, evaluation: Evaluation, version: int, *, last: bool = False) -> None:
        import numpy as np

        evaluation.publish(version, np.full(1, version, np.float32), last=last)

    def test_a_free_evaluator_gets_the_newest_version_due_and_each_only_once(self) -> None:
        evaluation = Evaluation(every=2)
        assert evaluation.next("e") is None
        for version in (1, 2, 3, 4, 5):
            self.publish(evaluation, version)
        asked = evaluation.next("e")
        assert asked is not None and asked[:2] == (FIRST_ID, 4)
        assert evaluation.busy and evaluation.next("e") is None
        assert evaluation.take("e", self.answer(asked[0], accuracy=0.5)) is not None
        assert not evaluation.busy and evaluation.next("e") is None

    def test_the_last_version_is_due_whatever_its_number(self) -> None:
        evaluation = Evaluation(every=10)
        self.publish(evaluation, 7, last=True)
        asked = evaluation.next("e")
        assert asked is not None and asked[1] == 7

    def test_answers_about_one_version_are_averaged_by_samples(self) -> None:
        evaluation = Evaluation(every=1)
        self.publish(evaluation, 1)
        tasks = [evaluation.next(name) for name in ("e", "f")]
        assert tasks[0] is not None and tasks[1] is not None
        evaluation.take("e", self.answer(tasks[0][0], samples=30, accuracy=0.4))
        taken = evaluation.take("f", self.answer(tasks[1][0], samples=10, accuracy=0.8))
        assert taken is not None
        assert taken[0].metrics["accuracy"] == pytest.approx(0.5)

    def test_an_answer_nobody_asked_for_does_not_count(self) -> None:
        evaluation = Evaluation(every=1)
        self.publish(evaluation, 1)
        assert evaluation.take("e", self.answer(FIRST_ID, accuracy=1.0)) is None
        evaluation.next("e")
        assert evaluation.take("e", self.answer(3, accuracy=1.0)) is None
        assert evaluation.busy

    def test_an_evaluator_that_went_away_is_asked_again(self) -> None:
        evaluation = Evaluation(every=1)
        self.publish(evaluation, 1)
        first = evaluation.next("e")
        evaluation.release("e")
        assert not evaluation.busy
        second = evaluation.next("e")
        assert first is not None and second is not None
        assert second[1] == first[1] and second[0] != first[0]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.LayoutError("x"), pb.Acknowledge.REASON_LAYOUT),
        (errors.FormatError("x"), pb.Acknowledge.REASON_FORMAT),
        (errors.NonFiniteError("x"), pb.Acknowledge.REASON_NON_FINITE),
        (errors.WindowError("x"), pb.Acknowledge.REASON_INVALID),
        (errors.ChecksumError("x"), pb.Acknowledge.REASON_DAMAGED),
        (errors.ProtocolError("x"), pb.Acknowledge.REASON_DAMAGED),
        (errors.RoundError("x"), pb.Acknowledge.REASON_INVALID),
    ],
)
def test_a_refused_result_has_the_reason_of_its_error(error: errors.FedecadoError, reason: int) -> None:
    assert refused_result(error) == reason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.VersionError("v"), pb.Refused.REASON_PROTOCOL_VERSION),
        (errors.LayoutError("l"), pb.Refused.REASON_LAYOUT),
        (errors.ProtocolError("p"), pb.Refused.REASON_BAD_MESSAGE),
        (errors.FedecadoError("f"), pb.Refused.REASON_BAD_MESSAGE),
    ],
)
def test_a_refused_session_says_why_and_not_to_try_again(error: errors.FedecadoError, reason: int) -> None:
    refused = refused_session(error)
    assert (refused.reason, refused.message, refused.retry) == (reason, str(error), False)
