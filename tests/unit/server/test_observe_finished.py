"""A run that is over can be looked at from its results."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedecado.common.errors import DataError
from fedecado.server.observe.finished import read_results
from fedecado.simulator.history import ClientRecord, History, RoundRecord


def record(number: int, **changes: Any) -> RoundRecord:
    fields: dict[str, Any] = {
        "round": number,
        "clock": 10.0 * number,
        "time": 2.0 * number,
        "updates": 3,
        "staleness": 0.0,
        "rate": 0.5,
        "loss_before": float("nan"),
        "loss_after": 0.25,
        "details": {"capacitance": 3.0, "truncation_error": 0.01},
        **changes,
    }
    return RoundRecord(**fields)


def written(folder: Path, **settings: Any) -> Path:
    history = History(settings=settings, ended="finished: all 2 rounds are done", seconds=4.0)
    history.rounds = [record(1), record(2, metrics={"accuracy": 0.9})]
    history.clients = [
        ClientRecord("a", 10, updates=2, round=2, window=0.5, flow=0.25, rate=0.1, epochs=2),
        ClientRecord("b", 20, updates=1, round=2, window=2.0, behind=1, error="no data"),
        ClientRecord("c", 30, updates=1, round=1, window=9.0),
        ClientRecord("d", 40),
    ]
    history.save(folder / "results.json")
    return folder


def test_results_become_the_snapshot_that_a_live_run_gives(tmp_path: Path) -> None:
    settings = {"run": {"name": "demo", "algorithm": "fedecado"}, "solver": {"rho": 1.2, "tolerance": 0.1}}
    shown = read_results(written(tmp_path, **settings))
    json.dumps(shown, allow_nan=False)
    assert shown["run"]["waiting_for"] == "finished: all 2 rounds are done"
    assert (shown["run"]["name"], shown["run"]["rho"], shown["run"]["version"]) == ("demo", 1.2, 2)
    assert [row["window"] for row in shown["rounds"]] == [2.0, 2.0]
    assert [row["seconds"] for row in shown["rounds"]] == [10.0, 10.0]
    assert shown["rounds"][0]["imbalance"] == 1.5
    assert shown["rounds"][0]["loss_before"] is None
    assert shown["measurements"] == [{"version": 2, "metrics": {"accuracy": 0.9}}]


def test_results_have_the_last_rounds_windows_and_a_row_per_client(tmp_path: Path) -> None:
    shown = read_results(written(tmp_path))
    assert shown["windows"] == {"round": 2, "T": 2.0, "clients": [["a", 0.5, 0, 0.25], ["b", 2.0, 1, None]]}
    assert [row["id"] for row in shown["workers"]] == ["a", "b", "c", "d"]
    first, second = shown["workers"][:2]
    assert (first["rate"], first["epochs"], first["flow"], first["accepted"]) == (0.1, 2, 0.25, 2)
    assert (second["error"], second["error_at"]) == ("no data", None)


def test_results_of_an_older_version_have_no_clients_and_open_all_the_same(tmp_path: Path) -> None:
    path = written(tmp_path) / "results.json"
    whole = json.loads(path.read_text())
    del whole["clients"]
    path.write_text(json.dumps(whole))
    shown = read_results(path)
    assert shown["windows"] is None and shown["workers"] == []


def test_other_algorithms_have_no_circuit_to_draw(tmp_path: Path) -> None:
    settings = {"run": {"algorithm": "fedavg"}, "solver": {"rho": 1.2, "tolerance": 0.1}}
    assert read_results(written(tmp_path, **settings))["run"]["tolerance"] is None


def test_the_file_itself_may_be_named(tmp_path: Path) -> None:
    assert len(read_results(written(tmp_path) / "results.json")["rounds"]) == 2


def test_a_folder_of_several_runs_names_them(tmp_path: Path) -> None:
    written(tmp_path / "fedavg")
    with pytest.raises(DataError, match=r"no results.json in .*; there are results in .*fedavg"):
        read_results(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"history": 3, "ended": "", "seconds": 1}'])
def test_what_are_no_results_is_said_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "results.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="does not hold the results of a run"):
        read_results(tmp_path)
