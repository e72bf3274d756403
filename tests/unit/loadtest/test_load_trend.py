"""Whether memory grows, and whether the generators kept up: numbers for the report and the exit code."""

import random

import pytest

from fedecado.loadtest.limits import Limits, judge
from fedecado.loadtest.record import At, Record, Sampler
from fedecado.loadtest.report import figures
from fedecado.loadtest.tally import Tally
from fedecado.loadtest.trend import trend
from fedecado.loadtest.watching import Sight, Vitals


def test_a_slope_is_found_under_noise_and_its_error_is_fair() -> None:
    misses = 0
    for seed in range(200):
        draw = random.Random(seed)
        found = trend([(float(s), 100 + 3 * s / 60 + draw.gauss(0, 2)) for s in range(240)])
        assert found is not None
        misses += abs(found.slope - 3) > 2.5 * found.error  # 2.4 standard errors at 6 degrees of freedom
    assert misses < 24, "about 5% are to be expected"


def test_a_sawtooth_is_flat_within_its_error() -> None:
    found = trend([(float(s), 500 + 2 * (s % 31)) for s in range(225)])
    assert found is not None and abs(found.slope) < 3 * found.error + 1


def test_too_little_says_nothing() -> None:
    assert trend([(0.0, 1.0)] * 23) is None


def record(growth: int, lag: float) -> Record:
    """Two minutes of a coordinator that grows by so many bytes per second."""
    made = Record(workers=1, bad_workers=0, connecting=0.0)
    sampler = Sampler(made)
    for second in range(1, 121):
        tally = Tally()
        for _ in range(20):
            tally.latencies["lag"].add(lag)
        vitals = Vitals(float(second), 0.0, 10**8 + growth * second)
        sampler.add(float(second), (tally, Tally()), Sight(vitals=vitals), At(1, 0.0, 0.0))
    return made


@pytest.mark.parametrize(("growth", "kept"), [(0, True), (15_000, True), (20_000, False)])
def test_the_slope_is_a_limit(growth: int, kept: bool) -> None:
    (verdict,) = judge(record(growth, 0.001), Limits(max_errors=None, max_rss_slope=1.0))
    assert verdict.value == pytest.approx(60 * growth / 1e6, abs=1e-6)
    assert verdict.kept is kept


def test_a_slope_that_was_not_measured_is_not_kept() -> None:
    (verdict,) = judge(Record(1, 0), Limits(max_errors=None, max_rss_slope=1.0))
    assert not verdict.kept


def test_generators_that_are_late_say_so() -> None:
    late, fine = (dict(figures(record(0, lag))) for lag in (0.5, 0.01))
    assert "late" in late["WARNING"]
    assert "WARNING" not in fine
