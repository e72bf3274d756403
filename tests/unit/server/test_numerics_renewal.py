"""What becomes of flows: means of several windows, of which clients are given what is not noise."""

import numpy as np
import pytest

from fedecado.server.numerics.circuit import Memory
from fedecado.server.numerics.renewal import WHOLE, Renewal, renewal, trust

GREW, TURNED, NEW = (0.25, 1.0), (9.0, 1.0), (1.0, 0.0)
"""Squared lengths of J_i and of the flow it is added to."""


def renewed(memory: Memory, doubt: float, *clients: tuple[float, float], rate: float = 1.0) -> Renewal:
    changes, flows = zip(*clients, strict=True)
    return renewal(memory, doubt, changes, flows, [rate] * len(clients))


def test_nothing_is_kept_back_where_nobody_is_absent() -> None:
    assert renewed(Memory(), 0.0, GREW, TURNED, NEW) is WHOLE
    assert trust(WHOLE.doubt) == 1.0


def test_flows_are_renewed_the_less_the_more_windows_they_look_back_on() -> None:
    new = renewed(Memory(1.5, 1.0), 0.0, GREW, TURNED, NEW)
    np.testing.assert_array_equal(new.added, 3 * [1 / 2])
    np.testing.assert_array_equal(new.kept, 3 * [1.0])


def test_who_is_late_looks_back_on_more_by_how_much_its_flow_changed() -> None:
    new = renewed(Memory(1.0, 1.0, 2.0), 0.0, GREW, TURNED, NEW, (1e300, 1e-300))
    np.testing.assert_allclose(new.added, [1 / 2.5, 1 / 4, 1 / 2, 1 / 4], err_msg="and nothing overflows")


def test_doubt_follows_how_much_flows_change() -> None:
    memory = Memory(0.5, 0.5)
    assert renewed(memory, 0.1, NEW, NEW).doubt == 0.1, "first windows contradict nobody"
    assert renewed(memory, 0.0, GREW, TURNED, NEW).doubt == pytest.approx(0.2 * 0.5 * (0.25 + 1.0) / 2)
    assert renewed(memory, 0.0, TURNED, rate=4.0).doubt == pytest.approx(0.2 * 0.5 / 4), "few notice"
    doubt = 0.0
    for _ in range(100):
        doubt = renewed(memory, doubt, TURNED, TURNED).doubt
    assert doubt == pytest.approx(0.5) and trust(doubt) == pytest.approx(1 / 1.5)
    for _ in range(100):
        doubt = renewed(Memory(), doubt, GREW, TURNED).doubt
    assert doubt < 1e-9, "nobody is absent any more"


@pytest.mark.parametrize("late", [0.0, 2.0])
def test_what_a_client_was_not_given_is_no_noise_and_at_rest_nothing_moves(late: float) -> None:
    """A client that stands still with its flow I answers c I with J = (1 - c) I."""
    doubt, flow = 0.6, 3.0
    J = (1 - trust(doubt)) * flow
    new = renewed(Memory(0.9, 0.9, late), doubt, (J * J, flow * flow))
    np.testing.assert_allclose(new.kept * flow + new.added * J, [flow], rtol=1e-15)
    assert new.doubt == pytest.approx(0.8 * doubt)
    np.testing.assert_allclose(new.added, [1 / 1.9])
