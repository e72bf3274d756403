"""A comparison on real processes: a coordinator and workers per run, in the same report."""

import json
from pathlib import Path

import pytest

from fedecado.cli.main import main


def test_a_comparison_runs_on_worker_processes_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["--on", "processes", "--folder", "out", "--clients", "2", "--rounds", "2"]
    assert main(["compare", "--algorithms", "fedecado,fedavg", *flags]) == 0
    told = capsys.readouterr()
    assert "| `fedavg` |" in told.out
    cells = sorted((tmp_path / "out" / "cells" / "processes").glob("*.json"))
    assert [cell.name for cell in cells] == ["all--fedavg--0.json", "all--fedecado--0.json"]
    for cell in cells:
        found = json.loads(cell.read_text())
        assert found["rounds"] == 2
        assert 0 <= found["accuracy"] <= 1
    assert (tmp_path / "out" / "report.html").exists()
    assert main(["compare", "--algorithms", "fedecado,fedavg", *flags]) == 0
    assert "0 runs to do" in capsys.readouterr().err


def test_quadratics_are_for_the_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "--algorithms", "fedavg", "--task", "quadratics", "--on", "processes"]) == 2
    assert "leave --on processes out" in capsys.readouterr().err
