"""A new project is complete: its settings load, its task trains, and nothing is overwritten."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedecado.cli.main import COMMANDS, main
from fedecado.common.sections import Everything
from fedecado.common.settings import load

FILES = {"fedecado.toml", "task.py", "README.md", ".gitignore"}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("task", None)


def test_a_project_is_written_and_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "deep/my digits"]) == 0
    assert {path.name for path in Path("deep/my digits").iterdir()} == FILES
    assert "fedecado simulate" in capsys.readouterr().out


def test_its_settings_are_valid_and_name_its_task() -> None:
    assert main(["init", "my digits!"]) == 0
    settings = load(Everything, file=Path("my digits!/fedecado.toml"), env={}).settings
    assert settings.run.name == "my-digits"
    assert settings.task.factory == "task:make"
    assert settings.rounds.max_rounds == 50


def test_its_settings_change_nothing_by_accident() -> None:
    main(["init"])
    written = load(Everything, file=Path("fedecado.toml"), env={}).settings
    for name in ("solver", "algorithm", "worker", "network"):
        assert getattr(written, name, None) == getattr(Everything(), name, None)
    assert written.training == Everything().training


def test_its_readme_names_commands_that_exist() -> None:
    main(["init"])
    text = Path("README.md").read_text()
    used = {line.split()[1] for line in text.splitlines() if line.startswith("    fedecado ")}
    assert used >= {"coordinator", "worker", "up", "status", "model"}
    assert used <= COMMANDS.keys() | {"coordinator", "up"}


def test_its_task_is_short() -> None:
    main(["init"])
    tree = ast.parse(Path("task.py").read_text())
    statements = [
        node for node in ast.walk(tree) if isinstance(node, ast.stmt) and not isinstance(node, ast.Expr)
    ]
    assert len(statements) <= 20
    assert not any(isinstance(node, ast.ClassDef) for node in ast.walk(tree))


def test_its_task_trains() -> None:
    torch = pytest.importorskip("torch")
    from fedecado.client.flat import FlatModel
    from fedecado.client.task import Context, load_task
    from fedecado.client.window import Assignment, Plan, run_window

    torch.set_num_threads(1)
    main(["init"])
    task = load_task("task:make", Context(index=1, clients=4, seed=0), {})
    evaluator = load_task("task:make", Context(index=0, clients=4, seed=0, role="evaluator"), {})
    model = FlatModel(task.model, torch.device("cpu"))
    start = model.state()
    result = run_window(task, model, Assignment(start), Plan(rate=0.1, epochs=5), round_seed=0)
    assert not np.array_equal(result.state, start)
    assert task.evaluate is not None
    model.load(result.state)
    assert task.evaluate(model.model)["accuracy"] > 0.5
    assert (task.samples, evaluator.samples) == (359, 360)


def test_what_exists_is_listed_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    Path("task.py").write_text("mine")
    Path("README.md").write_text("mine")
    assert main(["init"]) == 2
    assert (
        "already holds task.py, README.md; choose another folder, or give --force" in capsys.readouterr().err
    )
    assert {path.name for path in Path().iterdir()} == {"task.py", "README.md"}
    assert Path("task.py").read_text() == "mine"
    assert main(["init", "--force"]) == 0
    assert "def make" in Path("task.py").read_text()


def test_a_folder_that_cannot_be_made_is_a_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    assert main(["init", "file"]) == 2
    assert "cannot write the project to file" in capsys.readouterr().err


def test_its_files_pass_a_linter() -> None:
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.exists():
        pytest.skip("ruff is not installed")
    main(["init"])
    command = [str(ruff), "check", "--isolated", "--line-length", "110", "task.py"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
