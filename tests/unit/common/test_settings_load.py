"""Precedence, provenance and the forms a value may take."""

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field, SecretStr, ValidationError

from fedecado.common.settings import Loaded, Section, Settings, load


class Inner(Section):
    depth: int = 1


class Alpha(Section):
    """First section."""

    count: int = Field(1, ge=1)
    ratio: float | None = 0.5
    mode: Literal["slow", "fast"] = "slow"
    loud: bool = False
    names: list[str] = Field([])
    inner: Inner = Inner()


class Beta(Section):
    arguments: dict[str, Any] = Field({})
    token: SecretStr | None = None


class One(Settings):
    alpha: Alpha = Alpha()
    beta: Beta = Beta()


class Tuned(Settings):
    alpha: Alpha = Alpha(count=7, mode="fast")


class OnlyBeta(Settings):
    beta: Beta = Beta()


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "fedecado.toml") -> Path:
    path = Path(name)
    path.write_text(text)
    return path


def read(flags: dict[str, Any] | None = None, env: dict[str, str] | None = None) -> Loaded[One]:
    return load(One, flags=flags, env=env or {})


FILE = "[alpha]\ncount = 2\nratio = 0.25\nloud = true\nnames = ['a', 'b']\n[alpha.inner]\ndepth = 2\n"
ENV = {
    "FEDECADO_ALPHA__COUNT": "3",
    "FEDECADO_ALPHA__RATIO": "none",
    "FEDECADO_ALPHA__LOUD": "false",
    "FEDECADO_ALPHA__NAMES": "c, d",
    "FEDECADO_ALPHA__INNER__DEPTH": "3",
}
FLAGS = {
    "alpha.count": "4",
    "alpha.ratio": "1e-2",
    "alpha.loud": True,
    "alpha.names": "e",
    "alpha.inner.depth": "4",
}
EXPECTED: dict[str, list[Any]] = {
    "count": [1, 2, 3, 4],
    "ratio": [0.5, 0.25, None, 0.01],
    "loud": [False, True, False, True],
    "names": [[], ["a", "b"], ["c", "d"], ["e"]],
    "inner": [Inner(depth=1), Inner(depth=2), Inner(depth=3), Inner(depth=4)],
}


@pytest.mark.parametrize("top", [0, 1, 2, 3])
def test_flags_win_over_environment_over_file_over_defaults(top: int) -> None:
    if top >= 1:
        write(FILE)
    loaded = read(FLAGS if top >= 3 else {}, ENV if top >= 2 else {})
    for key, values in EXPECTED.items():
        assert getattr(loaded.settings.alpha, key) == values[top], key


def test_every_setting_knows_its_origin() -> None:
    write("[alpha]\ncount = 2\nloud = true\n")
    loaded = read({"alpha.loud": "no"}, {"FEDECADO_ALPHA__INNER__DEPTH": "3"})
    assert loaded.origin == {
        "alpha.count": "fedecado.toml",
        "alpha.ratio": "default",
        "alpha.mode": "default",
        "alpha.loud": "flag --alpha-loud",
        "alpha.names": "default",
        "alpha.inner.depth": "environment FEDECADO_ALPHA__INNER__DEPTH",
        "beta.arguments": "default",
        "beta.token": "default",
    }


def test_a_named_file_replaces_the_one_in_the_folder() -> None:
    write("[alpha]\ncount = 2\n")
    loaded = load(One, file=write("[alpha]\nmode = 'fast'\n", "other.toml"), env={})
    assert (loaded.settings.alpha.count, loaded.settings.alpha.mode) == (1, "fast")
    assert loaded.origin["alpha.mode"] == "other.toml"


def test_without_a_mapping_the_process_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDECADO_ALPHA__COUNT", "9")
    assert load(One).settings.alpha.count == 9


def test_constructing_settings_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDECADO_ALPHA__COUNT", "9")
    monkeypatch.setenv("FEDECADO_ALPHA", '{"count": 9}')
    assert One() == One(alpha=Alpha(count=1))


def test_free_tables_merge_entry_by_entry() -> None:
    write("[beta.arguments]\na = 1\nb = 1\nc = 1\n")
    loaded = read({"beta.arguments.c": "3", "beta.arguments.d": "x"}, {"FEDECADO_BETA__ARGUMENTS__B": "2.5"})
    assert loaded.settings.beta.arguments == {"a": 1, "b": 2.5, "c": 3, "d": "x"}
    assert loaded.origin["beta.arguments.a"] == "fedecado.toml"
    assert loaded.origin["beta.arguments.b"] == "environment FEDECADO_BETA__ARGUMENTS__B"
    assert loaded.origin["beta.arguments.c"] == "flag --beta-arguments"
    assert loaded.origin["beta.arguments"] == (
        "fedecado.toml, environment FEDECADO_BETA__ARGUMENTS__B, flag --beta-arguments"
    )


def test_a_whole_table_may_be_given_in_one_variable_or_as_a_mapping() -> None:
    loaded = read({"beta.arguments": {"b": "2"}}, {"FEDECADO_BETA__ARGUMENTS": "{a = 1, b = 1}"})
    assert loaded.settings.beta.arguments == {"a": 1, "b": "2"}


def test_a_list_may_be_written_as_an_array_when_items_hold_commas() -> None:
    assert read({"alpha.names": '["a,b", "c"]'}).settings.alpha.names == ["a,b", "c"]


def test_none_clears_an_optional_setting_in_the_file_too() -> None:
    write("[alpha]\nratio = 'none'\n")
    assert read().settings.alpha.ratio is None


def test_a_command_may_change_the_defaults_of_a_section() -> None:
    loaded = load(Tuned, flags={"alpha.loud": True}, env={})
    assert loaded.settings.alpha == Alpha(count=7, mode="fast", loud=True)


def test_sections_of_other_commands_are_allowed_in_file_and_environment() -> None:
    write("[alpha]\ncount = 2\n[beta.arguments]\na = 1\n")
    env = {"FEDECADO_ALPHA__LOUD": "yes"}
    loaded = load(OnlyBeta, env=env, known=One)
    assert loaded.settings.beta.arguments == {"a": 1}
    assert set(loaded.origin) == {"beta.arguments", "beta.arguments.a", "beta.token"}


def test_variables_that_kubernetes_derives_from_services_are_not_settings() -> None:
    read(
        env={
            "FEDECADO_COORDINATOR_SERVICE_HOST": "10.0.0.1",
            "FEDECADO_COORDINATOR_SERVICE_PORT": "50051",
            "FEDECADO_COORDINATOR_SERVICE_PORT_GRPC": "50051",
            "FEDECADO_COORDINATOR_PORT": "tcp://10.0.0.1:50051",
            "FEDECADO_COORDINATOR_PORT_50051_TCP": "tcp://10.0.0.1:50051",
            "FEDECADO_COORDINATOR_PORT_50051_TCP_ADDR": "10.0.0.1",
        }
    )


def test_settings_and_sections_are_frozen() -> None:
    settings = read().settings
    with pytest.raises(ValidationError):
        settings.alpha = Alpha()  # type: ignore[misc]  # the point of the test
    with pytest.raises(ValidationError):
        settings.alpha.count = 3  # type: ignore[misc]  # the point of the test
