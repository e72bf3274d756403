"""Privacy: what is sent is short and noisy, and the account never forgets a release."""

import json
import math
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.client.privacy import Account, Guard, Noise, fresh_chance
from fedecado.common.errors import ConfigError, TaskError


@given(length=st.floats(1e-3, 1e3), clip=st.floats(1e-2, 1e2), seed=st.integers(0, 20))
def test_a_displacement_is_sent_no_longer_than_the_clip_and_in_its_direction(
    length: float, clip: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal(50)
    direction /= np.linalg.norm(direction)
    start = rng.standard_normal(50)
    sent = Noise(clip, 1e-300).add(start, start + length * direction, rng)
    np.testing.assert_allclose(sent - start, min(length, clip) * direction, atol=1e-9 * max(length, 1))


def test_noise_has_the_deviation_that_was_asked_for_whatever_the_update_is() -> None:
    d = 300_000  # more than a block
    start = np.zeros(d, np.float32)
    for end in (start, start + np.float32(1.0)):
        sent = Noise(2.0, 3.0).add(start, end, np.random.default_rng(1))
        assert sent.dtype == np.float32
        assert sent.std() == pytest.approx(6.0, rel=0.01)


def test_no_two_processes_draw_the_same_noise() -> None:
    assert fresh_chance().standard_normal() != fresh_chance().standard_normal()


def test_epsilon_is_that_of_the_librarys_accountant_for_replaced_data() -> None:
    from dp_accounting import GaussianDpEvent, rdp

    account = Account(1e-5)
    assert account.epsilon == 0
    for _ in range(10):
        account.spend(8.0)
    bound = rdp.RdpAccountant()
    bound.compose(GaussianDpEvent(4.0), 10)  # the clipped update can change by twice its length
    exact = account.epsilon
    assert exact <= bound.get_epsilon(1e-5) <= 1.2 * exact


@given(st.lists(st.floats(0.5, 50), min_size=1, max_size=8))
def test_every_release_costs_something_and_less_noise_costs_more(multipliers: list[float]) -> None:
    account, quieter = Account(1e-5), Account(1e-5)
    before = 0.0
    for multiplier in multipliers:
        account.spend(multiplier)
        quieter.spend(multiplier / 2)
        assert account.epsilon >= before
        before = account.epsilon
    assert quieter.epsilon >= account.epsilon


def test_a_budget_is_kept_and_the_release_beyond_it_not_counted() -> None:
    account = Account(1e-5, budget=5.0)
    with pytest.raises(TaskError, match=r"privacy\.budget"):
        for _ in range(1000):
            account.spend(10.0)
    assert account.epsilon <= 5.0
    assert 0 < account.releases < 1000


def test_a_record_goes_on_after_a_restart_and_is_nobody_elses_to_read(tmp_path: Path) -> None:
    record = tmp_path / "privacy.json"
    first = Account(1e-5, record=record)
    first.spend(2.0)
    second = Account(1e-5, record=record)
    assert (second.releases, second.epsilon) == (1, first.epsilon)
    second.spend(2.0)
    assert json.loads(record.read_text())["releases"] == 2
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [record]


@pytest.mark.parametrize(
    "text", ["", "{}", '{"releases": -1, "spent": 1}', '{"releases": 1, "spent": NaN}', "[]"]
)
def test_a_damaged_record_stops_the_worker_instead_of_starting_anew(tmp_path: Path, text: str) -> None:
    record = tmp_path / "privacy.json"
    record.write_text(text)
    with pytest.raises(ConfigError, match="record"):
        Account(1e-5, record=record)


def test_a_record_that_cannot_be_written_stops_the_release(tmp_path: Path) -> None:
    guard = Guard(Noise(1.0, 1.0), Account(1e-5, record=tmp_path / "missing" / "privacy.json"))
    with pytest.raises(TaskError, match="nothing is sent"):
        guard.release(np.zeros(4), np.ones(4), 3)


def test_buffers_stay_as_they_came() -> None:
    guard = Guard(Noise(1.0, 1.0), Account(1e-5))
    sent = guard.release(np.zeros(4), np.full(4, 9.0), 3)
    assert sent[3] == 0.0
    assert sent[:3].any()
    assert guard.account.releases == 1
    assert math.isfinite(guard.account.epsilon)
