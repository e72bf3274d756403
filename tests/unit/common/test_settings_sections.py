"""Rules of single settings that their types do not tell."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fedecado.common.fields import sections_of, settings_of
from fedecado.common.sections import (
    Everything,
    RoundsSection,
    RunSection,
    SolverSection,
    TaskSection,
)
from fedecado.common.target import Target


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (10, 10), (1, 1), (1.0, 1.0), (0.25, 0.25),
        ("10", 10), ("1", 1), ("1.0", 1.0), ("0.25", 0.25), ("25%", 0.25), ("100 %", 1.0), ("all", 1.0),
    ],
)  # fmt: skip
def test_active_is_a_count_when_whole_and_a_share_otherwise(given: object, meant: float) -> None:
    active = RoundsSection.model_validate({"active": given}).active
    assert active == meant
    assert type(active) is type(meant)


@pytest.mark.parametrize(
    "value", [0, -1, 0.0, 1.5, "0%", "101%", "few", "", "%", "nan", True, None, [3], math.nan]
)
def test_other_values_of_active_are_refused(value: object) -> None:
    with pytest.raises(ValidationError, match="a count of clients"):
        RoundsSection.model_validate({"active": value})


@given(
    st.from_regex(r"[a-z_][a-z_/]{0,8}", fullmatch=True),
    st.sampled_from([">=", "<="]),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_a_target_is_a_metric_a_sign_and_a_number(metric: str, sign: str, bound: float) -> None:
    assert Target.parse(f" {metric} {sign}{bound}") == Target(metric, bound, rising=sign == ">=")


@pytest.mark.parametrize(
    "text", ["accuracy", "accuracy>0.9", ">=0.9", "accuracy>=", "accuracy>=high", "a>=inf"]
)
def test_any_other_target_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="NAME>=NUMBER"):
        RoundsSection(target_metric=text)


def test_a_round_cannot_close_before_it_has_enough_updates() -> None:
    with pytest.raises(ValidationError, match="target_updates = 2 is below min_updates = 3"):
        RoundsSection(target_updates=2, min_updates=3)


def test_rho_may_be_infinite_and_nothing_below_one() -> None:
    assert SolverSection(rho=math.inf).rho == math.inf
    for rho in (0.99, math.nan):
        with pytest.raises(ValidationError):
            SolverSection(rho=rho)


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "", "a b", "a\n"])
def test_a_run_name_stays_inside_its_folder(name: str) -> None:
    with pytest.raises(ValidationError):
        RunSection(name=name)


@pytest.mark.parametrize("factory", ["module", "module:", ":make", "a.b:c:d", "a b:c"])
def test_a_task_factory_is_a_module_and_a_function(factory: str) -> None:
    with pytest.raises(ValidationError):
        TaskSection(factory=factory)


def test_every_section_is_complete_by_its_defaults_and_every_setting_described() -> None:
    assert Everything() == Everything()
    for name, setting in settings_of(Everything).items():
        assert not setting.required, name
        assert setting.info.description, name
    for name, section in sections_of(Everything).items():
        assert section.__doc__, name


def test_no_two_settings_share_a_flag_or_a_variable() -> None:
    settings = settings_of(Everything).values()
    assert len({setting.flag for setting in settings}) == len(settings)
    assert len({setting.env for setting in settings}) == len(settings)
