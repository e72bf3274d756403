"""Flags made from a settings class."""

import argparse
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, SecretStr

from fedecado.common.errors import ConfigError
from fedecado.common.fields import toml_value
from fedecado.common.flags import add_flags, collect
from fedecado.common.settings import Section, Settings, load


class Rounds(Section):
    """When rounds close."""

    min_updates: int = Field(1, ge=1, description="Updates needed for 100% of a round.")
    deadline: float | None = Field(None, gt=0, description="Seconds.")
    clients: int = Field(3, json_schema_extra={"flag": "--clients"})
    mode: Literal["rounds", "stream"] = Field("rounds", description="How work is handed out.")
    verbose: bool = Field(False, description="Say more.")
    hosts: list[str] = Field([], description="Peers.")
    token: SecretStr = Field(SecretStr("hunter2"), description="Password.")
    arguments: dict[str, Any] = Field({}, json_schema_extra={"flag": "--arg"})


class Example(Settings):
    rounds: Rounds = Rounds()


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="example")
    add_flags(made, Example)
    return made


def flags(*argv: str) -> dict[str, Any]:
    return collect(parser().parse_args(argv), Example)


def rounds(*argv: str) -> Rounds:
    return load(Example, flags=flags(*argv), env={}).settings.rounds


def test_only_flags_that_were_given_are_collected() -> None:
    assert flags() == {}
    assert flags("--rounds-min-updates", "3") == {"rounds.min_updates": "3"}


def test_each_kind_of_field_has_its_form() -> None:
    got = rounds(
        *("--rounds-min-updates", "3", "--rounds-deadline", "2.5", "--clients", "9"),
        *("--rounds-mode", "stream", "--rounds-verbose", "--rounds-hosts", "a,b"),
        *("--arg", "alpha=0.5", "--arg", "name=x=y", "--arg", "sizes=[1, 2]"),
    )
    assert (got.min_updates, got.deadline, got.clients, got.mode) == (3, 2.5, 9, "stream")
    assert (got.verbose, got.hosts) == (True, ["a", "b"])
    assert got.arguments == {"alpha": 0.5, "name": "x=y", "sizes": [1, 2]}


def test_a_switch_can_be_turned_off_and_an_optional_cleared() -> None:
    Path("fedecado.toml").write_text("[rounds]\nverbose = true\ndeadline = 3\n")
    got = rounds("--no-rounds-verbose", "--rounds-deadline", "none")
    assert (got.verbose, got.deadline) == (False, None)


def test_an_alias_is_the_only_flag_of_its_setting() -> None:
    assert "--rounds-clients" not in parser().format_help()


def test_help_tells_description_type_range_choices_and_default() -> None:
    text = " ".join(parser().format_help().split())
    assert "rounds: When rounds close." in text
    assert "Updates needed for 100% of a round. (a whole number >= 1; default 1)" in text
    assert "Seconds. (a number > 0, or none; default none)" in text
    assert "--rounds-mode {rounds,stream} How work is handed out. (default rounds)" in text
    assert "--rounds-verbose, --no-rounds-verbose Say more. (default false)" in text
    assert "--arg KEY=VALUE (repeatable; default empty)" in text


def test_help_hides_secrets() -> None:
    assert "hunter2" not in parser().format_help()


@pytest.mark.parametrize("item", ["alone", "=3"])
def test_an_argument_without_key_or_value_is_refused(item: str) -> None:
    with pytest.raises(ConfigError, match="must be KEY=VALUE"):
        flags("--arg", item)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1e-3", 1e-3),
        ("true", True),
        ("False", False),
        ("'3'", "3"),
        ("[1, 2]", [1, 2]),
        ("{a = 1}", {"a": 1}),
        ("resnet18", "resnet18"),
        ("", ""),
        ("3 # not a comment", "3 # not a comment"),
        ("3, y = 4", "3, y = 4"),
        ("3}\nw = {x = 4", "3}\nw = {x = 4"),
    ],
)
def test_entries_are_read_as_toml_or_else_as_text(text: str, value: object) -> None:
    assert toml_value(text) == value


@given(st.text())
def test_no_text_breaks_the_reading_of_an_entry(text: str) -> None:
    toml_value(text)
