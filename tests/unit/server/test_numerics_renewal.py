"""What becomes of flows: means of several windows, of which what is not noise acts within the next."""

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
    assert renewed(Memory(1.5, 1.0), 0.0, GREW, TURNED, NEW).added == 1 / 2
    assert renewed(Memory(1.5), 0.0, GREW, TURNED, NEW).added == 1.0, "nobody is late"


def test_who_is_late_looks_back_on_more_by_how_much_its_flow_changed() -> None:
    new = renewed(Memory(1.0, 1.0, 2.0), 0.0, GREW, TURNED, NEW, (1e300, 1e-300))
    np.testing.assert_allclose(new.added, [1 / 2.5, 1 / 4, 1 / 2, 1 / 4], err_msg="and nothing overflows")


def test_doubt_follows_how_much_flows_change() -> None:
    memory = Memory(0.5, 0.5)
    assert renewed(memory, 0.1, NEW, NEW).doubt == 0.1, "first windows contradict nobody"
    assert renewed(memory, 0.0, GREW, TURNED, NEW).doubt == pytest.approx(0.2 * (0.25 + 1.0) / 2)
    assert renewed(memory, 0.0, TURNED, rate=4.0).doubt == pytest.approx(0.2 / 4), "few notice"
    doubt = 0.0
    for _ in range(100):
        doubt = renewed(memory, doubt, TURNED, TURNED).doubt
    assert doubt == pytest.approx(1.0) and trust(doubt) == pytest.approx(1 / 2)
    for _ in range(100):
        doubt = renewed(Memory(), doubt, GREW, TURNED).doubt
    assert doubt < 1e-9, "nobody is absent any more"


@pytest.mark.parametrize("doubt", [0.1, 1.0, 2.0])
def test_doubt_does_not_keep_itself_alive(doubt: float) -> None:
    """A stiff client at rest gives way to what is held back, and is off by as much when it is added."""
    for _ in range(100):
        missing = (1 - trust(doubt)) * 3.0
        doubt = renewed(Memory(1.0), doubt, (missing * missing, 9.0)).doubt
    assert doubt < 1e-6
