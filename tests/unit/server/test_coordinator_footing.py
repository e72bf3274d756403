"""When a worker is told how its drift follows from its last one, and when it is sent."""

import pytest

from fedecado.server.algorithms import Moved
from fedecado.server.coordinator.footing import IN_FULL_EVERY, Footing
from fedecado.server.federation import Follows


def follows(task: int) -> Follows:
    return Follows(version=1, task=task, moved=Moved(toward=6.0, along=4.0))


def counted(task: int = 1, divisor: float = 3.0) -> Footing:
    """Of a worker whose task counted, and whose drift was a third of its flow."""
    footing = Footing()
    footing.gave(task, divisor, sent=True)
    footing.counted(task)
    return footing


def test_the_drift_follows_from_the_last_task_that_counted() -> None:
    change = counted().change(follows(1), 2.0)
    assert change is not None
    assert (change.task_id, change.keep, change.toward, change.along) == (1, 1.5, 3.0, 2.0)


def test_it_is_sent_where_the_worker_has_nothing_to_make_it_of() -> None:
    footing = Footing()
    assert footing.change(follows(1), 2.0) is None, "it never had a drift"
    footing.counted(1)
    assert footing.change(follows(1), 2.0) is None, "that was in another session"
    footing.gave(2, 3.0, sent=True)
    assert footing.change(follows(2), 2.0) is None, "its update has not counted"
    footing.counted(1)
    assert footing.change(follows(1), 2.0) is None, "another one has"


def test_it_is_sent_where_the_flow_does_not_follow() -> None:
    assert counted().change(None, 2.0) is None
    assert counted(1).change(follows(2), 2.0) is None, "another update of the client moved it"


def test_what_was_used_is_gone() -> None:
    footing = counted(1)
    footing.gave(2, 3.0, sent=False)
    assert footing.change(follows(1), 2.0) is None


@pytest.mark.parametrize("interruption", [None, 5])
def test_rounding_adds_up_over_so_many_tasks_only(interruption: int | None) -> None:
    footing, sent = Footing(), []
    for task in range(1, 3 * IN_FULL_EVERY + 1):
        change = footing.change(follows(task - 1), 1.0)
        footing.gave(task, 1.0, sent=change is None)
        if change is None:
            sent.append(task)
        if task != interruption:
            footing.counted(task)
    first = 1 if interruption is None else interruption + 1
    assert sent == sorted({1, *range(first, 3 * IN_FULL_EVERY + 1, IN_FULL_EVERY)})
