"""What is said when a configuration is wrong."""

import traceback
from pathlib import Path
from typing import Any, Literal, Self

import pytest
from pydantic import Field, SecretStr, model_validator

from fedecado.common.errors import ConfigError
from fedecado.common.settings import Section, Settings, load


class Rounds(Section):
    deadline: float | None = Field(None, gt=0)
    low: int = Field(1, ge=1, le=10)
    high: int = 10
    mode: Literal["rounds", "stream"] = "rounds"
    arguments: dict[str, Any] = Field({})

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.high < self.low:
            raise ValueError(f"high = {self.high} is below low = {self.low}")
        return self


class Access(Section):
    token: SecretStr = Field(SecretStr("a-long-default"), min_length=8)
    address: str


class Train(Settings):
    rounds: Rounds = Rounds()


class Connect(Settings):
    access: Access


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refusal(
    text: str = "",
    *,
    cls: type[Settings] = Train,
    flags: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
) -> str:
    Path("fedecado.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(cls, flags=flags, env=env or {})
    return str(caught.value)


def test_an_unknown_name_in_the_file_suggests_the_nearest() -> None:
    assert refusal("[rounds]\ndedline = 3\n") == (
        "unknown setting 'rounds.dedline' in fedecado.toml; did you mean 'rounds.deadline'?"
    )


def test_a_name_that_another_section_has_is_suggested() -> None:
    assert refusal("dedline = 3\n").endswith("did you mean 'rounds.deadline'?")


def test_an_unknown_table_is_one_problem() -> None:
    assert refusal("[round]\ndeadline = 3\nlow = 2\n") == (
        "unknown table 'round' in fedecado.toml; did you mean 'rounds'?"
    )
    assert refusal("[rounds.argumens]\na = 1\n").endswith("did you mean 'rounds.arguments'?")


def test_a_name_unlike_any_other_gets_no_suggestion() -> None:
    assert refusal("[rounds]\nzzzzqq = 3\n") == "unknown setting 'rounds.zzzzqq' in fedecado.toml"


def test_a_value_where_a_table_belongs_is_named() -> None:
    assert refusal("rounds = 3\n") == "rounds = 3 (fedecado.toml): must be a table, as in [rounds]"


@pytest.mark.parametrize(
    "name", ["FEDECADO_ROUNDS__DEDLINE", "FEDECADO_ROUNDS_DEADLINE", "FEDECADO_rounds__DEADLINE"]
)
def test_an_unknown_variable_suggests_the_nearest(name: str) -> None:
    assert refusal(env={name: "3"}) == (
        f"unknown environment variable {name!r}; did you mean 'FEDECADO_ROUNDS__DEADLINE'?"
    )


def test_an_unknown_flag_suggests_the_nearest() -> None:
    assert refusal(flags={"rounds.dedline": "3"}) == (
        "unknown flag '--rounds-dedline'; did you mean '--rounds-deadline'?"
    )


def test_a_known_section_of_no_command_here_is_still_unknown_as_a_flag() -> None:
    with pytest.raises(ConfigError, match="unknown flag '--rounds-low'"):
        load(Connect, flags={"rounds.low": "3", "access.address": "x"}, env={}, known=Train)


def test_every_problem_is_listed_at_once_with_value_origin_and_remedy() -> None:
    message = refusal(
        "[rounds]\nlow = 11\nhih = 2\n",
        env={"FEDECADO_ROUNDS__DEADLINE": "-1", "FEDECADO_NOPE": ""},
        flags={"rounds.mode": "strem", "rounds.high": "ten"},
    )
    assert message.splitlines() == [
        "6 problems in the configuration:",
        "  unknown setting 'rounds.hih' in fedecado.toml; did you mean 'rounds.high'?",
        "  unknown environment variable 'FEDECADO_NOPE'",
        "  rounds.deadline = '-1' (environment FEDECADO_ROUNDS__DEADLINE): must be a number > 0, or none",
        "  rounds.low = 11 (fedecado.toml): must be a whole number >= 1 and <= 10",
        "  rounds.high = 'ten' (flag --rounds-high): must be a whole number",
        "  rounds.mode = 'strem' (flag --rounds-mode): must be one of rounds, stream; did you mean 'stream'?",
    ]


def test_settings_that_contradict_each_other_are_named_with_their_origins() -> None:
    assert refusal("[rounds]\nlow = 5\n", flags={"rounds.high": "4"}) == (
        "rounds: high = 4 is below low = 5 (rounds.low: fedecado.toml; rounds.high: flag --rounds-high)"
    )


def test_true_is_not_a_number() -> None:
    assert refusal("[rounds]\nlow = true\n") == (
        "rounds.low = True (fedecado.toml): must be a whole number >= 1 and <= 10"
    )


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_numbers_are_finite_unless_declared_otherwise(value: str) -> None:
    assert refusal(f"[rounds]\ndeadline = {value}\n").endswith("must be a number > 0, or none")


def test_a_free_table_must_be_a_table() -> None:
    assert "must be a table" in refusal("[rounds]\narguments = 3\n")
    assert "must be a table" in refusal(env={"FEDECADO_ROUNDS__ARGUMENTS": "a=1"})


def test_a_missing_setting_says_how_to_give_it() -> None:
    assert refusal(cls=Connect) == (
        "access.address is not set: give it as --access-address, FEDECADO_ACCESS__ADDRESS "
        "or in the file (text)"
    )


def test_a_wrong_secret_is_not_shown_even_in_the_traceback() -> None:
    secret = "".join(["hun", "ter"])
    with pytest.raises(ConfigError) as caught:
        load(Connect, env={"FEDECADO_ACCESS__TOKEN": secret, "FEDECADO_ACCESS__ADDRESS": "x"})
    assert str(caught.value) == (
        "access.token = **** (environment FEDECADO_ACCESS__TOKEN): must be secret text of length >= 8"
    )
    assert secret not in "".join(traceback.format_exception(caught.value))


def test_a_named_file_that_is_missing_or_unreadable_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*'nowhere.toml': No such file"):
        load(Train, file=Path("nowhere.toml"), env={})
    with pytest.raises(ConfigError, match="Is a directory"):
        load(Train, file=Path(), env={})


def test_malformed_toml_is_reported_with_its_line() -> None:
    assert "fedecado.toml is not valid TOML" in (message := refusal("[rounds]\nlow = \n"))
    assert "line 2" in message


def test_a_file_that_is_not_text_is_refused() -> None:
    Path("binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(Train, file=Path("binary.toml"), env={})
