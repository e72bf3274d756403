"""Rules and targets accept what makes sense and name what does not."""

import math
from typing import Any

import pytest

from fedecado.common.errors import ConfigError
from fedecado.server.rounds import Rules, Target

GOOD: list[dict[str, Any]] = [
    {},
    {"mode": "stream"},
    {"active": 1},
    {"active": 1000},
    {"active": 1.0},
    {"active": 1e-9},
    {"min_updates": 3, "target_updates": 3},
    {"deadline": 0.1, "lease": 0.1, "retry": 0.1, "rest_tolerance": 1e-300},
    {"max_staleness": 0},
    {"max_rounds": None},
    {"max_rounds": 1},
]

BAD: list[tuple[str, Any]] = [
    ("mode", "batch"),
    ("active", 0),
    ("active", -1),
    ("active", 0.0),
    ("active", 1.5),
    ("active", math.nan),
    ("active", True),
    ("min_clients", 0),
    ("min_updates", 0),
    ("target_updates", 0),
    ("deadline", 0.0),
    ("deadline", -1.0),
    ("deadline", math.inf),
    ("lease", 0.0),
    ("lease", math.nan),
    ("retry", 0.0),
    ("retry", math.inf),
    ("max_staleness", -1),
    ("max_rounds", 0),
    ("rest_tolerance", 0.0),
]


@pytest.mark.parametrize("values", GOOD, ids=str)
def test_rules_within_their_ranges_are_accepted(values: dict[str, Any]) -> None:
    rules = Rules(**values)
    assert all(getattr(rules, name) == value for name, value in values.items())


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_rule_out_of_range_is_named_with_its_value_and_its_range(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"{name} is {value!r}; it must be \S+"):
        Rules(**{name: value})


def test_a_target_below_min_updates_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"target_updates is 2; it must be at least min_updates \(3\)"):
        Rules(min_updates=3, target_updates=2)


@pytest.mark.parametrize(
    ("active", "enrolled", "wanted"),
    [(5, 3, 5), (1.0, 7, 7), (0.5, 7, 4), (0.1, 3, 1), (0.001, 100, 1)],
)
def test_the_wanted_number_of_clients(active: float, enrolled: int, wanted: int) -> None:
    assert Rules(active=active).wanted(enrolled) == wanted


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("accuracy>=0.9", Target("accuracy", 0.9, rising=True)),
        (" loss <= 1e-3 ", Target("loss", 1e-3, rising=False)),
        ("val/top-1.mean>=-2", Target("val/top-1.mean", -2.0, rising=True)),
    ],
)
def test_a_target_is_a_name_a_direction_and_a_number(text: str, target: Target) -> None:
    assert Target.parse(text) == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        "accuracy",
        "accuracy>0.9",
        "accuracy==0.9",
        ">=0.9",
        "a b>=1",
        "accuracy>=",
        "accuracy>=high",
        "loss<=nan",
        "loss<=inf",
        "loss<=1 2",
    ],
)
def test_a_malformed_target_is_quoted(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Target.parse(text)
    assert repr(text) in str(caught.value)


def test_a_target_is_reached_from_its_own_side() -> None:
    rising, falling = Target.parse("m>=1"), Target.parse("m<=1")
    assert [rising.reached({"m": value}) for value in (0.9, 1.0, 1.1)] == [False, True, True]
    assert [falling.reached({"m": value}) for value in (0.9, 1.0, 1.1)] == [True, True, False]
    assert not rising.reached({})
    assert not rising.reached({"m": math.nan})
