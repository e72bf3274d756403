"""`fedecado simulate` as a person types it."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedecado.cli.main import main

QUADRATICS = ["simulate", "--task", "quadratics", "--clients", "8", "--active", "4", "--quiet"]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def simulate(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    assert main([*QUADRATICS, "--json", "-", *flags]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_json_to_standard_output_is_all_that_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    result = simulate(capsys, "--rounds", "200")
    assert result["distance"] < 1e-3
    assert result["rounds"] == len(result["history"]) == 200
    assert result["settings"]["run"]["algorithm"] == "fedecado"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "algorithm", ["fedavg", "fedprox", "fednova", "scaffold", "feddyn", "fedbuff", "fedadam", "fedexp"]
)
def test_every_algorithm_reports_its_distance(capsys: pytest.CaptureFixture[str], algorithm: str) -> None:
    assert simulate(capsys, "--rounds", "5", "--algorithm", algorithm)["distance"] > 0


def test_without_json_results_and_plot_go_to_the_run_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*QUADRATICS, "--rounds", "3", "--name", "first"]) == 0
    assert {path.name for path in (tmp_path / "runs" / "first").iterdir()} == {"results.json", "plot.png"}
    assert "all 3 rounds are done" in capsys.readouterr().out


def test_parquet_and_svg_by_their_endings(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    assert main([*QUADRATICS, "--rounds", "3", "--results", "r.parquet", "--plot", "p.svg"]) == 0
    assert pq.read_table(tmp_path / "r.parquet").num_rows == 3
    assert (tmp_path / "p.svg").read_text().lstrip().startswith("<?xml")


def test_a_recorded_trace_replays_to_the_bit(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--rounds", "30", "--rounds-mode", "stream", "--speed-spread", "1", "--dropout", "0.1"]
    first = simulate(capsys, *flags, "--record", "trace.jsonl")
    again = simulate(capsys, *flags, "--replay", "trace.jsonl")
    assert first["history"] == again["history"]


def test_one_file_configures_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "fedecado.toml").write_text('[rounds]\nmax_rounds = 4\n[run]\nalgorithm = "scaffold"\n')
    result = simulate(capsys)
    assert (result["rounds"], result["settings"]["run"]["algorithm"]) == (4, "scaffold")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--task-arg", "sise=3"], "size and spread"),
        (["--results", "r.xlsx"], "use .json or .parquet"),
        (["--replay", "missing.jsonl"], "missing.jsonl"),
        (["--algorithm", "fedevg"], "fedavg"),
        (["--rates", "0.1,0.01"], "in order"),
        (["--solver-rho", "0.5"], "rho"),
    ],
)
def test_mistakes_are_explained(capsys: pytest.CaptureFixture[str], flags: list[str], words: str) -> None:
    assert main([*QUADRATICS, "--rounds", "2", *flags]) != 0
    assert words in capsys.readouterr().err


def test_ctrl_c_ends_it_without_a_traceback() -> None:
    command = [sys.executable, "-m", "fedecado.cli", *QUADRATICS, "--rounds", "1000000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        # The command is at work, or about to be, once numpy's libraries are loaded.
        while "umath" not in Path(f"/proc/{process.pid}/maps").read_text():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
