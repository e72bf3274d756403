"""`fedecado compare` as a person types it: resumable, fair, and with everything in its folder."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedecado.cli.main import main

QUADRATICS = """
title = "Quadratics"
target = "distance<=0.9"
[base]
task.factory = "quadratics"
fleet.clients = 6
rounds = { active = 3, max_rounds = 12, evaluate_every = 2 }
[algorithms]
fedecado = {}
fedavg = {}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.toml").write_text(QUADRATICS)


def compare(*flags: str) -> int:
    return main(["compare", "q.toml", "--folder", "out", "--metric", "distance", "--jobs", "1", *flags])


def results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("out/results.json").read_text())
    return found


def test_a_comparison_leaves_runs_tables_plots_and_a_report_that_needs_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import pyarrow.parquet as pq

    assert compare("--seeds", "2") == 0
    out = capsys.readouterr().out
    assert "| `fedecado` |" in out and "**" in out
    assert len(list(Path("out/cells").glob("*.json"))) == 4
    table = pq.read_table("out/results.parquet")
    assert table.num_rows == 4 * 12
    assert {"setting", "algorithm", "seed", "round", "clock", "wall", "bytes", "metric.distance"} <= set(
        table.column_names
    )
    page = Path("out/report.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 2  # distance and loss
    assert not re.search(r"""(src|href)=["']?(https?:|//)""", page)
    assert "Not alike" not in page
    assert [row["algorithm"] for row in results()["rows"]] == ["fedecado", "fedavg"]


def test_finished_runs_are_not_run_again_and_changed_settings_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare() == 0
    before = {path: path.stat().st_mtime_ns for path in Path("out/cells").iterdir()}
    assert "2 runs to do" in capsys.readouterr().err
    assert compare() == 0
    assert {path: path.stat().st_mtime_ns for path in Path("out/cells").iterdir()} == before
    assert "0 runs to do, 0 rounds; 2 are there" in capsys.readouterr().err
    damaged = Path("out/cells/all--fedavg--0.json")
    damaged.write_text(damaged.read_text()[:100])
    assert compare("--quiet") == 0
    assert json.loads(damaged.read_text())["rounds"] == 12
    assert compare("--rounds", "4", "--quiet") == 0
    assert json.loads(damaged.read_text())["rounds"] == 4
    capsys.readouterr()
    assert compare("--rounds", "4", "--solver-inertia", "0.5") == 0
    assert "1 runs to do" in capsys.readouterr().err, "a knob of the circuit is none of FedAvg's"


def test_all_algorithms_of_a_seed_have_the_same_partition_start_and_arrivals() -> None:
    assert compare("--quiet", "--seeds", "3,4", "--rounds-mode", "stream", "--speed-spread", "1") == 0
    same = {
        path.stem: json.loads(path.read_text())["same"] for path in sorted(Path("out/cells").glob("*.json"))
    }
    assert same["all--fedavg--3"] == same["all--fedecado--3"]
    assert same["all--fedavg--3"] != same["all--fedavg--4"]


def test_one_seed_can_be_named() -> None:
    assert compare("--quiet", "--seeds", "3,", "--rounds", "2") == 0
    assert {path.stem.rpartition("--")[2] for path in Path("out/cells").iterdir()} == {"3"}


def test_a_run_that_diverges_is_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("--rates", "1000,2000", "--epochs", "200,200") == 0
    told = capsys.readouterr()
    assert "| diverged |" in told.out
    assert "diverged: " in told.err
    assert all(row["mean"] is None for row in results()["rows"])


def test_tuning_tries_the_grid_on_a_validation_split_and_keeps_the_defaults_of_fedecado(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "q.toml").write_text(
        """
        [base]
        fleet.clients = 4
        rounds.max_rounds = 2
        training.probes = 1
        [algorithms]
        fedecado = {}
        fedavg = {}
        [tune]
        fedecado.training.rate = [0.00001, 0.1]
        fedavg.training.rate = [0.00001, 0.1]
        """
    )
    assert main(["compare", "q.toml", "--folder", "out", "--tune", "--jobs", "1", "--quiet"]) == 0
    found = results()
    assert [row["algorithm"] for row in found["rows"]] == ["fedecado", "fedecado-tuned", "fedavg-tuned"]
    assert [choice["point"] for choice in found["tuning"]] == [{"training.rate": 0.1}] * 2
    assert len(list(Path("out/tuning").glob("*.json"))) == 4
    tried = json.loads(Path("out/tuning/all--fedavg-0--1000.json").read_text())
    assert tried["settings"]["task"]["arguments"]["scored"] == "validation"
    assert (
        "scored"
        not in json.loads(Path("out/cells/all--fedavg-tuned--0.json").read_text())["settings"]["task"]
    )
    assert "Tuning" in Path("out/report.html").read_text()


def test_unequal_budgets_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    grids = "[tune]\nfedecado.training.rate = [1, 2]\nfedavg.training.rate = [1]\n"
    (tmp_path / "q.toml").write_text(QUADRATICS + grids)
    assert compare("--tune") == 2
    assert "must be fair" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["compare"], "--algorithms fedecado,fedavg"),
        (["compare", "nonid"], "noniid"),
        (["compare", "--size", "small", "--algorithms", "fedavg"], "--size is for presets"),
        (["compare", "noniid", "--size", "big"], "small"),
        (["compare", "noniid", "--seeds", "many"], "--seeds"),
        (["compare", "noniid", "--jobs", "0"], "--jobs"),
        (["compare", "noniid", "--size", "small", "--quiet", "--jobs", "1"], "data=FOLDER"),
        (["compare", "--algorithms", "fedevg"], "fedavg"),
        (["compare", "noniid", "--size", "small", "--settings", "cifar"], "it has: cifar10, fashion-mnist"),
    ],
)
def test_mistakes_are_explained(capsys: pytest.CaptureFixture[str], flags: list[str], words: str) -> None:
    assert main(flags) != 0
    assert words in capsys.readouterr().err


def test_some_of_the_settings_can_be_chosen(tmp_path: Path) -> None:
    (tmp_path / "q.toml").write_text(QUADRATICS + "[settings.few]\n[settings.all]\nrounds.active = 6\n")
    assert compare("--quiet", "--settings", "all") == 0
    assert {row["setting"] for row in results()["rows"]} == {"all"}


def test_several_runs_at_a_time_give_the_same_results() -> None:
    assert compare("--quiet", "--seeds", "2") == 0
    alone = results()["rows"]
    assert compare("--quiet", "--seeds", "2", "--folder", "two", "--jobs", "2") == 0
    beside = json.loads(Path("two/results.json").read_text())["rows"]
    assert [row["finals"] for row in alone] == [row["finals"] for row in beside]


def _blocked(pid: str, number: signal.Signals) -> bool:
    """Whether a process does not hear a signal."""
    (mask,) = re.findall(r"^SigBlk:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_ctrl_c_keeps_what_is_done_and_leaves_no_helper() -> None:
    flags = ["--folder", "out", "--metric", "distance", "--jobs", "2", "--rounds", "1000000"]
    command = [sys.executable, "-m", "fedecado.cli", "compare", "q.toml", *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        while "left;" not in process.stderr.readline():  # a helper has closed a round
            assert process.poll() is None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        helpers = [pid for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]
        held = [_blocked(pid, signal.SIGINT) for pid in helpers]
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "the same command goes on" in errors
    assert all(held), "from its first moment on, Ctrl-C is not a helper's to answer"
    assert "Traceback" not in errors
    assert len(helpers) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in helpers)
