"""Commands, exit codes and what reaches the terminal."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedecado.cli import main as cli
from fedecado.common.errors import ConfigError, RoundError
from fedecado.common.sections import RoundsSection
from fedecado.common.settings import Loaded, Settings


class ProbeSettings(Settings):
    rounds: RoundsSection = RoundsSection()


@pytest.fixture(autouse=True)
def _quiet_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("FEDECADO_")]:
        monkeypatch.delenv(name)


Run = Callable[[Any, argparse.Namespace], int]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Add a command called `probe` that does what the test says."""

    def add(run: Run, **attributes: Any) -> None:
        module = ModuleType("probe_command", "Probe things.\n\nExamples:\n  fedecado probe\n")
        vars(module).update(attributes, run=run)
        monkeypatch.setitem(sys.modules, "probe_command", module)
        monkeypatch.setitem(cli.COMMANDS, "probe", ("probe_command", "Probe things"))

    return add


def raising(error: BaseException) -> Run:
    def run(loaded: Any, args: argparse.Namespace) -> int:
        raise error

    return run


def spawn(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FEDECADO_")}
    command = [sys.executable, *argv]
    return subprocess.run(command, capture_output=True, text=True, env=clean | env, timeout=60, check=False)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from fedecado.cli.main import main; code = main(['--help']);"
        "heavy = {'pydantic', 'pydantic_settings', 'numpy', 'rich', 'torch', 'grpc'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else code)"
    )
    done = spawn("-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    assert "simulate" in done.stdout


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, (_, text) in cli.COMMANDS.items():
        assert name in shown
        assert text in shown


def test_without_a_command_the_overview_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0]) == ("", "usage: fedecado COMMAND [options]")


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("fedecado ")


def test_an_unknown_command_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["confg"]) == 2
    assert capsys.readouterr().err == "fedecado: error: unknown command 'confg'; did you mean 'config'?\n"
    assert cli.main(["qqqq"]) == 2
    assert "fedecado --help" in capsys.readouterr().err


def test_the_docstring_describes_the_command(
    install: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(lambda loaded, args: 0, SETTINGS=ProbeSettings)
    assert cli.main(["probe", "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: fedecado probe [options]\n\nProbe things.\n\nExamples:\n")
    assert "--config FILE" in shown
    assert "--rounds-deadline SECONDS" in shown


def test_a_command_gets_its_settings_and_arguments(install: Callable[..., None]) -> None:
    seen: list[tuple[Loaded[ProbeSettings], argparse.Namespace]] = []

    def run(loaded: Loaded[ProbeSettings], args: argparse.Namespace) -> int:
        seen.append((loaded, args))
        return 7

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("output")

    install(run, SETTINGS=ProbeSettings, add_arguments=add_arguments)
    Path("mine.toml").write_text("[rounds]\ndeadline = 3\n[solver]\nrho = 1.5\n")
    assert cli.main(["probe", "here", "--config", "mine.toml", "--rounds-min-updates", "2"]) == 7
    [(loaded, args)] = seen
    assert loaded.settings.rounds == RoundsSection(deadline=3, min_updates=2)
    assert args.output == "here"


def test_positional_arguments_stand_in_the_usage_line(
    install: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(lambda loaded, args: 0, add_arguments=lambda parser: parser.add_argument("output"))
    assert cli.main(["probe", "-h"]) == 0
    assert capsys.readouterr().out.startswith("usage: fedecado probe [options] OUTPUT\n")


def test_a_command_without_settings_gets_none(install: Callable[..., None]) -> None:
    install(lambda loaded, args: 0 if loaded is None else 1)
    assert cli.main(["probe"]) == 0


def test_unknown_flags_suggest_the_nearest(
    install: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(lambda loaded, args: 0, SETTINGS=ProbeSettings)
    assert cli.main(["probe", "--rounds-dedline", "3", "--rounds-mod=x"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "fedecado: error: 2 unknown flags:",
        "  unknown flag '--rounds-dedline'; did you mean '--rounds-deadline'?",
        "  unknown flag '--rounds-mod'; did you mean '--rounds-mode'? (see fedecado probe --help)",
    ]


@pytest.mark.parametrize("argv", [["stray"], ["--rounds-deadline"], ["--rounds-dead", "3"]])
def test_misuse_exits_with_two_and_no_traceback(
    argv: list[str], install: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(lambda loaded, args: 0, SETTINGS=ProbeSettings)
    assert cli.main(["probe", *argv]) == 2
    err = capsys.readouterr().err
    assert err.startswith("fedecado: error: ")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("error", "code"), [(ConfigError("no such thing"), 2), (RoundError("no such thing"), 1)]
)
def test_errors_are_one_line_and_an_exit_code(
    error: Exception, code: int, install: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(raising(error))
    assert cli.main(["probe"]) == code
    assert capsys.readouterr().err == "fedecado: error: no such thing\n"


def test_debug_shows_the_traceback(
    install: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDECADO_DEBUG", "1")
    install(raising(RoundError("no such thing")), SETTINGS=ProbeSettings)
    assert cli.main(["probe"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.endswith("fedecado: error: no such thing\n")


def test_an_interrupt_is_silent(install: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    install(raising(KeyboardInterrupt()))
    assert cli.main(["probe"]) == 130
    assert capsys.readouterr() == ("", "")


def test_mistakes_in_the_code_are_not_hidden(install: Callable[..., None]) -> None:
    install(raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        cli.main(["probe"])


def test_a_closed_pipe_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only a buffered stdout has something left to write at exit.
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "fedecado.cli", "--help"]
    with os.fdopen(writer, "w") as closed:
        done = subprocess.run(
            command, stdout=closed, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (141, "")


def test_plugins_of_pydantic_are_left_to_the_users_own_code() -> None:
    """Ours are not looked for, which takes a tenth of a second, but a task of the user's may have some."""
    code = (
        "import os, sys\n"
        "from fedecado.cli.main import main\n"
        "import pydantic.plugin._loader as loader\n"
        "main(['config', '--section', 'solver'])\n"
        "sys.exit('PYDANTIC_DISABLE_PLUGINS' in os.environ or loader._plugins is not None)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60, capture_output=True)
    assert done.returncode == 0, done.stderr
