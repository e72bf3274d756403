"""What a run leaves behind: JSON, Parquet, pictures."""

import json
import math
from pathlib import Path

import pytest

from fedecado.common.errors import ConfigError
from fedecado.simulator import History, RoundRecord
from fedecado.simulator.plot import plot

pq = pytest.importorskip("pyarrow.parquet")


def record(number: int, **metrics: float) -> RoundRecord:
    return RoundRecord(
        round=number,
        clock=1.5 * number,
        time=0.1 * number,
        updates=3,
        staleness=0.5,
        rate=1.0 / number,
        loss_before=math.nan,
        loss_after=0.25,
        metrics=metrics,
        details={"steps": number, "capacitance": 1.7},
    )


@pytest.fixture
def history() -> History:
    rounds = [
        record(1),
        record(2, accuracy=0.5, loss=2.0),
        record(3),
        record(4, accuracy=0.75, loss=math.inf),
    ]
    settings = {"algorithm": "fedecado", "rho": math.inf, "out": Path("a/b")}
    return History(settings, rounds, ended="all 4 rounds are done", seconds=1.23456)


def test_metrics_and_series_are_those_that_were_measured(history: History) -> None:
    assert history.metrics() == {"accuracy": 0.75, "loss": math.inf}
    assert history.series("accuracy") == ([2, 4], [0.5, 0.75])
    assert history.series("unknown") == ([], [])


def test_json_holds_the_whole_run(history: History, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run.json"
    history.save(path)

    def no_constants(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    read = json.loads(path.read_text(encoding="utf-8"), parse_constant=no_constants)
    assert (read["accuracy"], read["rounds"], read["ended"]) == (0.75, 4, "all 4 rounds are done")
    assert read["loss"] == "inf"
    assert read["settings"] == {"algorithm": "fedecado", "rho": "inf", "out": "a/b"}
    assert read["seconds"] == 1.235
    first = read["history"][0]
    assert first["loss_before"] is None
    assert (first["round"], first["clock"], first["details"]["steps"], first["metrics"]) == (1, 1.5, 1, {})
    assert read["history"][3]["metrics"]["accuracy"] == 0.75


def test_parquet_holds_every_round_as_a_row(history: History, tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    history.save(path)
    table = pq.read_table(path)
    columns = table.to_pydict()
    assert columns["round"] == [1, 2, 3, 4]
    assert columns["metric.accuracy"] == [None, 0.5, None, 0.75]
    assert columns["metric.loss"] == [None, 2.0, None, math.inf]
    assert columns["detail.steps"] == [1, 2, 3, 4]
    assert all(math.isnan(value) for value in columns["loss_before"])
    about = json.loads(table.schema.metadata[b"fedecado"])
    assert about["ended"] == "all 4 rounds are done"
    assert about["settings"]["algorithm"] == "fedecado"


@pytest.mark.parametrize("name", ["run.json", "run.parquet"])
def test_a_run_without_rounds_is_written_too(name: str, tmp_path: Path) -> None:
    History(ended="stopped on request").save(tmp_path / name)
    assert (tmp_path / name).stat().st_size > 0


@pytest.mark.parametrize("name", ["run.csv", "run"])
def test_other_endings_are_refused(name: str, history: History, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"use \.json or \.parquet"):
        history.save(tmp_path / name)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["run.png", "run.svg"])
def test_a_picture_of_several_runs_is_written(name: str, history: History, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    other = History(rounds=[record(1, distance=1e-3), record(2, distance=math.nan)])
    path = tmp_path / "plots" / name
    plot({"fedecado": history, "fedavg": other}, path)
    assert path.stat().st_size > 5000


def test_a_picture_of_a_run_without_metrics_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "run.png"
    plot({"run": History(rounds=[record(1), record(2)])}, path)
    assert path.stat().st_size > 5000


def test_a_picture_format_that_cannot_be_drawn_is_refused(history: History, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(ConfigError, match=r"cannot draw run\.xyz"):
        plot({"run": history}, tmp_path / "run.xyz")
