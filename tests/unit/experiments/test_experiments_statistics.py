"""Statistics of a comparison, against scipy and by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from outcome_making import outcome
from scipy import stats

from fedecado.common.target import Target
from fedecado.experiments.statistics import AXES, curve, final, paired, rounds_to_match, rounds_to_target
from fedecado.experiments.summary import markdown, summarise, unlike

SCORES = st.lists(st.floats(0, 1), min_size=2, max_size=8)


def test_a_final_score_is_the_mean_of_the_last_evaluations() -> None:
    assert final(outcome("a", 0, [0.1, 0.6, 0.7, 0.8]), "accuracy") == pytest.approx(0.7)
    assert final(outcome("a", 0, [0.4]), "accuracy") == 0.4
    assert math.isnan(final(outcome("a", 0, [0.4], ended="diverged: NaN"), "accuracy"))
    assert math.isnan(final(outcome("a", 0, [0.4]), "recall"))


def test_rounds_to_target_is_a_median_in_which_never_counts_as_forever() -> None:
    target = Target("accuracy", 0.5, rising=True)
    fast, slow, never = (outcome("a", s, v) for s, v in enumerate([[0.6], [0.1, 0.2, 0.5], [0.1] * 4]))
    assert rounds_to_target([fast, slow], target) == 2
    assert rounds_to_target([fast, slow, never], target) == 3
    assert rounds_to_target([fast, never, never], target) is None


def test_rounds_to_match_are_to_what_the_other_ends_with_on_the_same_seed() -> None:
    ours = [outcome("a", 0, [0.1, 0.4, 0.9]), outcome("a", 1, [0.1, 0.2, 0.3, 0.4])]
    theirs = [outcome("b", 1, [0.3, 0.3, 0.3]), outcome("b", 0, [0.4])]
    assert rounds_to_match(ours, theirs, "accuracy") == 2.5
    assert rounds_to_match(ours, [outcome("b", s, [0.95]) for s in range(2)], "accuracy") is None
    assert rounds_to_match(ours, [outcome("b", 7, [0.1])], "accuracy") is None, "no seed in common"
    assert rounds_to_match(ours, [outcome("b", 0, [0.1], ended="diverged: NaN")], "accuracy") is None


@given(SCORES, st.randoms(use_true_random=False))
def test_the_paired_test_is_scipy_s(left: list[float], random: object) -> None:
    right = [min(1.0, value + 0.01 * (k + 1) ** 2) for k, value in enumerate(left)]
    found = paired(left, right)
    assert found is not None
    gaps = np.subtract(left, right)
    assert found.difference == pytest.approx(gaps.mean())
    if found.p is not None:
        assert found.p == pytest.approx(stats.ttest_rel(left, right).pvalue, rel=1e-6)


def test_no_test_where_seeds_differ_or_a_run_diverged() -> None:
    assert paired([0.1, 0.2], [0.1]) is None
    assert paired([0.1, math.nan], [0.1, 0.2]) is None
    only = paired([0.3], [0.1])
    assert only is not None and only.p is None


@pytest.mark.parametrize(
    ("axis", "last"), [("round", 3), ("virtual seconds", 6), ("wall seconds", 9), ("megabytes", 3)]
)
def test_a_curve_is_the_mean_and_spread_over_seeds_along_any_axis(axis: str, last: float) -> None:
    found = curve(
        [outcome("a", 0, [0.0, 0.2, 0.4]), outcome("a", 1, [0.2, 0.4, 0.6])], "accuracy", AXES[axis]
    )
    assert found is not None
    assert found.x[-1] == last
    np.testing.assert_allclose(found.mean, [0.1, 0.3, 0.5])
    np.testing.assert_allclose(found.spread, 0.1)


def test_a_curve_ends_where_the_shortest_run_does() -> None:
    found = curve([outcome("a", 0, [0.1] * 9), outcome("a", 1, [0.1] * 4)], "accuracy", AXES["round"])
    assert found is not None
    assert found.x[-1] == 4
    assert curve([outcome("a", 0, [])], "accuracy", AXES["round"]) is None


def test_the_best_mean_is_best_and_the_others_are_held_against_it() -> None:
    runs = [outcome("good", s, [0.8 + s / 100]) for s in range(3)]
    runs += [outcome("bad", s, [0.5 + s / 50]) for s in range(3)]
    runs += [outcome("broken", s, [0.1], ended="diverged: the loss is nan") for s in range(3)]
    good, bad, broken = summarise(runs, "accuracy", Target("accuracy", 0.52, rising=True))
    assert (good.best, bad.best, broken.best) == (True, False, False)
    assert bad.against_best is not None
    assert bad.against_best.difference == pytest.approx(0.52 - 0.81)
    assert broken.against_best is None
    table = markdown([good, bad, broken], "accuracy", Target("accuracy", 0.52, rising=True))
    assert "**0.8100**" in table
    assert "| `broken` | diverged |" in table
    assert "rounds to 0.52 | matched by good after |" in table
    assert [line.split("|")[-2].strip() for line in table.splitlines()[2:]] == ["", "1", ""]


def test_of_losses_the_lowest_is_best() -> None:
    runs = [outcome("a", 0, [0.5]), outcome("b", 0, [0.1])]
    for run in runs:
        for record in run.rounds:
            object.__setattr__(record, "metrics", {"loss": record.metrics["accuracy"]})
    assert [row.best for row in summarise(runs, "loss", None)] == [False, True]


def test_runs_that_should_have_been_alike_and_were_not_are_named() -> None:
    alike = [outcome("a", 0, [0.1]), outcome("b", 0, [0.2])]
    assert unlike(alike) == []
    assert unlike([*alike, outcome("c", 0, [0.3], arrivals="other")]) == ["s, seed 0: arrivals"]
    assert unlike([*alike, outcome("c", 0, [0.3], arrivals="other", ended="diverged: x")]) == []
