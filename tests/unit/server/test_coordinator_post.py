"""What a task tells a worker, by the version of the protocol that it speaks."""

from typing import Any, cast

import numpy as np
import pytest

from fedecado.common.enclosed import MOST
from fedecado.common.layout import Vector
from fedecado.server.algorithms import Assignment, Moved
from fedecado.server.coordinator.footing import Footing
from fedecado.server.coordinator.members import Member
from fedecado.server.coordinator.post import Suggestions, Version, assignment
from fedecado.server.federation import Follows, Offer
from fedecado.v1 import session_pb2 as pb

SHORT, LONG = 3, MOST // 4 + 1


class Standing:
    """A session in which task 6 counted, whose drift was the whole flow."""

    def __init__(self) -> None:
        self.footing = Footing()
        self.footing.gave(6, 1.0, sent=True)
        self.footing.counted(6)


def told(minor: int, size: int, *, kept: bool = True, makes: bool = False) -> tuple[pb.Assign, Vector]:
    """The header of a task, weight 2, whose flow of twos is doubted; the drift as it is sent.

    The flow follows from task 6.
    """
    hello = pb.Hello(protocol=pb.ProtocolVersion(major=1, minor=minor), makes_drifts=makes)
    state, flow = np.zeros(size, np.float32), np.full(size, 2.0, np.float32)
    given = Assignment(kept=flow if kept else None, weight=2.0, after=0.25)
    offer = Offer(7, 3, state, 2.0, given, Follows(3, 6, Moved(toward=5.0, along=2.5)))
    member = Member("w", 0, pb.ROLE_TRAINER, hello, session=cast("Any", Standing()))
    parcel, size = assignment(offer, 1, Version(3, state), Suggestions(), member)
    header, *frames = [
        pb.CoordinatorMessage.FromString(m if isinstance(m, bytes) else m.SerializeToString()) for m in parcel
    ]
    assign = header.assign
    assert size == assign.state_bytes + assign.drift_bytes
    data = assign.drift.data or b"".join(frame.chunk.data for frame in frames)[assign.state_bytes :]
    return assign, np.frombuffer(data, np.float32)


@pytest.mark.parametrize("size", [SHORT, LONG])
def test_a_part_of_the_drift_is_left_for_the_end(size: int) -> None:
    header, drift = told(3, size)
    assert (header.weight, header.drift_after) == (2.0, 0.25)
    np.testing.assert_allclose(drift, np.full(size, 0.8), rtol=1e-6)


@pytest.mark.parametrize(("minor", "size"), [(0, SHORT), (2, SHORT), (0, LONG), (2, LONG)])
def test_workers_that_do_not_know_of_it_are_given_all_of_it(minor: int, size: int) -> None:
    header, drift = told(minor, size)
    assert header.drift_after == 0.0
    np.testing.assert_array_equal(drift, np.ones(size))


def test_without_a_drift_there_is_nothing_to_add() -> None:
    header, drift = told(3, SHORT, kept=False)
    assert (header.drift_bytes, header.drift_after, len(drift)) == (0, 0.0, 0)


def test_a_worker_that_can_make_its_long_drift_is_told_how() -> None:
    header, drift = told(4, LONG, makes=True)
    change = header.drift_change
    assert (header.drift_bytes, len(drift), header.drift_after) == (0, 0, 0.25)
    assert (change.task_id, change.keep, change.toward, change.along) == (6, 0.4, 2.0, 1.0)


@pytest.mark.parametrize(("makes", "size"), [(True, SHORT), (False, LONG)])
def test_short_drifts_and_those_of_workers_that_make_none_are_sent(makes: bool, size: int) -> None:
    header, drift = told(4, size, makes=makes)
    assert not header.HasField("drift_change") and len(drift) == size


def test_who_has_no_flow_is_told_of_no_drift() -> None:
    header, _ = told(4, LONG, kept=False, makes=True)
    assert not header.HasField("drift_change") and not header.drift_bytes
