"""Durations, tallies, plans and limits of a load test."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.common.errors import ConfigError
from fedecado.loadtest.durations import Durations
from fedecado.loadtest.limits import Limits, judge
from fedecado.loadtest.plan import MISCHIEF, Plan, TlsPattern, deal_mischief
from fedecado.loadtest.record import At, Record, Sampler, Second
from fedecado.loadtest.tally import KINDS, Histogram, Tally
from fedecado.loadtest.watching import Sight, Vitals

SECONDS = st.floats(1e-5, 1e4)


@pytest.mark.parametrize(
    ("text", "mean", "spread"),
    [("3", 3.0, 0.0), ("uniform:1,3", 2.0, 1 / math.sqrt(3)), ("exponential:2", 2.0, 2.0)],
)
def test_durations_have_the_distribution_they_name(text: str, mean: float, spread: float) -> None:
    rng = random.Random(0)
    drawn = np.asarray([Durations.parse(text).draw(rng) for _ in range(20_000)])
    assert drawn.mean() == pytest.approx(mean, rel=0.05)
    assert drawn.std() == pytest.approx(spread, rel=0.05, abs=1e-12)


def test_a_lognormal_is_given_by_its_median() -> None:
    rng = random.Random(0)
    drawn = [Durations.parse("lognormal:5,0.5").draw(rng) for _ in range(20_000)]
    assert np.median(drawn) == pytest.approx(5.0, rel=0.05)
    assert np.std(np.log(drawn)) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize(
    "text", ["", "fast", "uniform:1", "uniform:3,1", "normal:1,2", "-1", "nan", "inf", "constant:"]
)
def test_any_other_training_time_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ConfigError, match="uniform:LOW,HIGH"):
        Durations.parse(text)


@given(st.lists(SECONDS, min_size=1), st.floats(0, 1))
def test_a_quantile_is_within_a_bucket_of_the_exact_one(values: list[float], q: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    exact = sorted(values)[max(1, math.ceil(q * len(values))) - 1]
    assert histogram.quantile(q) == pytest.approx(exact, rel=0.026)


def test_a_quantile_of_nothing_is_not_a_number() -> None:
    assert math.isnan(Histogram().quantile(0.5))


@given(st.lists(SECONDS), st.lists(SECONDS))
def test_tallies_of_two_processes_merge_into_that_of_one(left: list[float], right: list[float]) -> None:
    one, two, both = Tally(), Tally(), Tally()
    for tally, values in ((one, left), (two, right), (both, [*left, *right])):
        for value in values:
            tally.latencies["push"].add(value)
            tally.counts["accepted"] += 1
            tally.error(f"kind {value:.0f}"[:8])
    one.merge(Tally.of(two.plain()))
    assert one.plain()["counts"] == both.plain()["counts"]
    assert one.plain()["latencies"] == both.plain()["latencies"]
    assert one.errors.total() == both.errors.total()


def test_kinds_of_errors_are_bounded() -> None:
    tally = Tally()
    for number in range(10 * KINDS):
        tally.error(f"text of a peer {number}")
    assert len(tally.errors) == KINDS + 1
    assert tally.errors.total() == 10 * KINDS
    assert tally.errors["other"] == 9 * KINDS


def test_a_plan_survives_its_way_to_another_process() -> None:
    tls = TlsPattern("ca.pem", "{id}.pem", "{id}.key")
    plan = Plan("host:1", 10, 5, tls=tls, storm_every=3.0, bad={12: "nan", 14: "stalling"})
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.worker_id(12) == "load-12"
    assert str(tls.files("load-12").key) == "load-12.key"


@given(st.dictionaries(st.sampled_from(MISCHIEF), st.integers(0, 5)), st.integers(0, 1000))
def test_as_many_misbehave_as_were_asked_for(counts: dict[str, int], first: int) -> None:
    dealt = deal_mischief(counts, first, 100)
    assert all(first <= number < first + 100 for number in dealt)
    assert {kind: n for kind, n in counts.items() if n} == {
        kind: list(dealt.values()).count(kind) for kind in set(dealt.values())
    }


def test_bad_actors_of_unknown_kinds_or_without_honest_ones_are_refused() -> None:
    with pytest.raises(ConfigError, match="'evil'; there are nan"):
        deal_mischief({"evil": 1}, 0, 10)
    with pytest.raises(ConfigError, match="no honest one of 3"):
        deal_mischief({"nan": 3}, 0, 3)


def sampled(rss: list[int], updates: int = 10) -> Record:
    """A record of so many seconds after one in which the workers came."""
    record = Record(workers=2, bad_workers=0)
    sampler = Sampler(record)
    sampler.add(1.0, (Tally(), Tally()), Sight(), At(0, 0.0, 0.0))
    record.connecting = 1.0
    for number, size in enumerate(rss, 2):
        tally = Tally()
        tally.counts["accepted"] = updates
        tally.latencies["push"].add(0.2)
        sight = Sight(number, 0, 0, Vitals(float(number), 0.5 * number, size))
        sampler.add(float(number), (tally, Tally()), sight, At(2, 0.1 * number, 0.0))
    return record


def test_rates_count_from_the_moment_all_workers_were_there() -> None:
    record = sampled([100] * 20)
    assert record.duration == 20.0
    assert record.updates_rate == pytest.approx(10.0)
    assert record.rounds_rate == pytest.approx(1.0)
    assert record.summary()["coordinator_cores"] == pytest.approx(0.5)


def test_memory_growth_is_judged_after_warming_up() -> None:
    assert sampled([10, 50, 100, 100, 100, 100, 100, 100]).rss_growth == 0
    assert sampled(list(range(0, 800, 10))).rss_growth == 400
    assert sampled([]).rss_growth is None


def test_limits_are_judged_and_what_was_not_measured_is_not_kept() -> None:
    record = sampled([100] * 20)
    record.errors.error("disconnected")
    verdicts = {v.name: v.kept for v in judge(record, Limits(0, 9.0, 2.0, 0.3, 1.0, 0.0))}
    assert verdicts == {
        "max-errors": False,
        "min-updates-rate": True,
        "min-rounds-rate": False,
        "max-push-p99": True,
        "max-assign-p99": False,
        "max-rss-growth": True,
    }
    assert judge(record, Limits(max_errors=None)) == []


def test_workers_that_never_came_are_errors() -> None:
    record = sampled([1])
    record.never_connected = 1
    assert record.error_count == 1
    assert record.summary()["errors"] == {"never connected": 1}


def test_a_second_has_gaps_where_nothing_was_seen() -> None:
    first = sampled([]).seconds[0]
    assert isinstance(first, Second)
    assert (first.rss, first.cpu, first.rounds, first.push_p99) == (None, None, None, None)
