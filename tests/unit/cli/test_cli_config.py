"""The `config` command and its three forms of output."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from fedecado.cli import render
from fedecado.cli.main import main
from fedecado.common.sections import (
    Everything,
    RoundsSection,
    RunSection,
    SolverSection,
    TaskSection,
    TrainingSection,
)
from fedecado.common.settings import Loaded, Section, Settings, load


@pytest.fixture(autouse=True)
def _quiet_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("FEDECADO_")]:
        monkeypatch.delenv(name)


positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
count = st.integers(1, 2**40)
text = st.text(st.characters(exclude_categories=["Cs"]))
toml_values = st.recursive(
    text
    | st.integers(-(2**63), 2**63 - 1)
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.datetimes()
    | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)


def choice(section: type[Section], field: str) -> st.SearchStrategy[Any]:
    return st.sampled_from(section.model_fields[field].annotation.__args__)  # type: ignore[union-attr]  # a Literal


@st.composite
def rounds_sections(draw: st.DrawFn) -> RoundsSection:
    low = draw(count)
    return RoundsSection(
        mode=draw(choice(RoundsSection, "mode")),
        active=draw(count | st.floats(0, 1, exclude_min=True)),
        min_updates=low,
        target_updates=draw(st.none() | st.integers(low, 2**41)),
        deadline=draw(st.none() | positive),
        max_rounds=draw(st.none() | count),
        target_metric=draw(st.none() | st.sampled_from(["accuracy>=0.9", " loss <= 1e-3"])),
    )


everything = st.builds(
    Everything,
    run=st.builds(
        RunSection,
        name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]*", fullmatch=True),
        seed=st.integers(0, 2**63 - 1),
        algorithm=choice(RunSection, "algorithm"),
        directory=st.builds(Path, text),
    ),
    task=st.builds(TaskSection, arguments=st.dictionaries(text, toml_values, max_size=4)),
    rounds=rounds_sections(),
    solver=st.builds(
        SolverSection,
        rho=st.floats(min_value=1),
        inertia=st.floats(0, 1),
        inductance=st.none() | positive,
        tolerance=positive,
        norm=choice(SolverSection, "norm"),
    ),
    training=st.builds(TrainingSection, rate=positive, clip=st.none() | positive, device=text.filter(len)),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=everything)
def test_settings_printed_as_toml_and_loaded_again_are_the_same(wanted: Everything) -> None:
    file = Path("again.toml")
    file.write_text(render.to_toml(render.entries(Loaded(wanted, {}))), encoding="utf-8")
    again = load(Everything, file=file, env={}).settings
    assert again == wanted
    assert type(again.rounds.active) is type(wanted.rounds.active)


def test_elsewhere_than_on_a_terminal_it_prints_toml_with_origins(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("fedecado.toml").write_text("[rounds]\ndeadline = 30\n[task.arguments]\nclients = 5\n")
    monkeypatch.setenv("FEDECADO_SOLVER__RHO", "inf")
    assert main(["config", "--seed", "3", "--task-arg", "alpha=0.1"]) == 0
    shown = capsys.readouterr().out
    assert "deadline = 30.0  # fedecado.toml\n" in shown
    assert "rho = inf  # environment FEDECADO_SOLVER__RHO\n" in shown
    assert "seed = 3  # flag --seed\n" in shown
    assert "[task.arguments]\nclients = 5  # fedecado.toml\nalpha = 0.1  # flag --task-arg\n" in shown
    assert "epochs = 1  # default\n" in shown
    assert list(tomllib.loads(shown)) == list(Everything.model_fields)


def test_one_section_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--section", "solver"]) == 0
    assert list(tomllib.loads(capsys.readouterr().out)) == ["solver"]


def test_an_unknown_section_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--section", "solvr"]) == 2
    assert capsys.readouterr().err == "fedecado: error: unknown section 'solvr'; did you mean 'solver'?\n"


def test_json_has_value_and_origin_of_each_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--json", "--solver-rho", "inf", "--rounds-deadline", "2"]) == 0

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    shown = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert shown["solver.rho"] == {"value": "inf", "origin": "flag --solver-rho"}
    assert shown["rounds.deadline"] == {"value": 2.0, "origin": "flag --rounds-deadline"}
    assert shown["rounds.target_updates"] == {"value": None, "origin": "default"}


def test_on_a_terminal_it_prints_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["config", "--section", "solver", "--solver-kappa", "2"]) == 0
    shown = capsys.readouterr().out
    assert "solver.kappa" in shown
    assert "flag --solver-kappa" in shown


def test_a_wrong_configuration_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    Path("fedecado.toml").write_text("[rounds]\ndedline = 30\nmin_updates = 0\n")
    assert main(["config"]) == 2
    assert capsys.readouterr().err.startswith("fedecado: error: 2 problems in the configuration:\n")


class Vault(Section):
    token: SecretStr | None = None
    spare: SecretStr | None = None


class VaultSettings(Settings):
    vault: Vault = Vault()


def test_secrets_are_hidden_in_every_form(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = render.entries(load(VaultSettings, env={"FEDECADO_VAULT__TOKEN": "hunter2"}))
    render.print_table(shown)
    forms = [render.to_toml(shown), render.to_json(shown), capsys.readouterr().out]
    for form in forms:
        assert "hunter2" not in form
        assert "****" in form
    assert tomllib.loads(forms[0]) == {"vault": {"spare": "none"}}
