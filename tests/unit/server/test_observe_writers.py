"""What is written for TensorBoard and MLflow, read back with their own readers."""

import importlib.util
import math
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path

import pytest
from observe_driving import ABOUT, closed_round, make_run

from fedecado.common.errors import ConfigError
from fedecado.server.coordinator.journal import Measurement
from fedecado.server.observe import scribe as scribes
from fedecado.server.observe.observer import Window
from fedecado.server.observe.scribe import Entry, Scribe
from fedecado.server.observe.writers import Ledgers, open_writers


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take long to load MLflow."""
    monkeypatch.setattr(scribes, "CLOSE_SECONDS", 200.0)


def two_rounds(scribe: Scribe) -> None:
    scribe.closed(closed_round(1), (Window("a", 0.5, 0, 0.1), Window("b", 1.0, 0, 0.3)))
    scribe.measured(Measurement(1, {"accuracy": 0.5, "top-5 (%)": 90.0, "bad": math.nan}))
    scribe.closed(closed_round(2, loss_after=math.nan), ())
    scribe.measured(Measurement(2, {"accuracy": 0.75}))


def test_tensorboard_finds_every_round_and_measurement(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    ledgers = Ledgers(tensorboard=tmp_path / "boards")
    for _ in range(2):  # a run that goes on adds a file
        (scribe,) = open_writers(ledgers, make_run(tmp_path), ABOUT)
        two_rounds(scribe)
        scribe.close(finished=True)
        scribe.close(finished=True)
    files = list((tmp_path / "boards" / "demo").iterdir())
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for event in EventFileLoader(str(files[0])).Load():
        for value in event.summary.value:
            found[value.tag].append((event.step, value.tensor.float_val[0]))
    assert found["quality/accuracy"] == [(1, 0.5), (2, 0.75)]
    assert found["circuit/rate"] == [(1, 0.5), (2, 0.5)]
    assert found["circuit/imbalance"] == [(1, 1.0), (2, 1.0)]
    assert found["solver/flow_max"] == [(1, 0.75), (2, 0.75)]
    assert found["clients/loss_after"] == [(1, 0.5)], "NaN is no point of a curve"
    assert [value for _, value in found["solver/truncation_error"]] == pytest.approx([0.03, 0.03])
    assert len(files) == 2


@pytest.mark.filterwarnings("default")  # those of MLflow and what it loads are its own
def test_mlflow_finds_every_round_and_goes_on_with_a_run_that_does(tmp_path: Path) -> None:
    uri = (tmp_path / "mlruns").as_uri()
    for finished in (False, True):
        (scribe,) = open_writers(Ledgers(mlflow=uri), make_run(tmp_path), ABOUT)
        two_rounds(scribe)
        scribe.close(finished=finished)
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("fedecado")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("demo", "FINISHED")
    assert run.data.tags["fedecado.run_id"] == "demo-1"
    assert run.data.params == {"algorithm": "fedecado", "mode": "rounds", "software": "1.2.3"}
    history = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "quality/accuracy")]
    assert history == [(1, 0.5), (2, 0.75)] * 2
    assert run.data.metrics["quality/top-5 ___"] == 90, "MLflow does not take every letter"


class Broken:
    def write(self, entry: Entry) -> None:
        raise PermissionError("the disk is full")

    def close(self, *, finished: bool) -> None:
        raise AssertionError("given up before")


def test_a_writer_that_fails_is_given_up_and_said_so_once(caplog: pytest.LogCaptureFixture) -> None:
    scribe = Scribe("MLflow", Broken)
    for number in range(1, 50):
        scribe.closed(closed_round(number), ())
    scribe.close(finished=True)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage() == (
        "MLflow failed and is given up; the run goes on: PermissionError('the disk is full')"
    )


def test_a_writer_that_cannot_be_opened_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> Broken:
        raise RuntimeError("no such server")

    scribe = Scribe("MLflow", fail)
    scribe.measured(Measurement(1, {"accuracy": 0.5}))
    scribe.close(finished=True)
    assert "no such server" in caplog.text


def test_a_writer_that_hangs_holds_up_neither_the_run_nor_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scribes, "WAITING", 3)
    monkeypatch.setattr(scribes, "CLOSE_SECONDS", 0.01)
    over = threading.Event()

    class Stuck:
        def write(self, entry: Entry) -> None:
            over.wait(60)

        def close(self, *, finished: bool) -> None: ...

    scribe = Scribe("MLflow", Stuck)
    for number in range(1, 100):
        scribe.closed(closed_round(number), ())
    scribe.close(finished=True)
    over.set()
    words = [record.getMessage() for record in caplog.records]
    assert words == [
        "MLflow does not keep up; some rounds are left out there",
        "MLflow took longer than 0.01 s; what was left for it is lost",
    ]


@pytest.mark.parametrize("package", ["tensorboard", "mlflow"])
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setattr("fedecado.server.observe.writers.find_spec", lambda _: None)
    ledgers = Ledgers(tmp_path, None) if package == "tensorboard" else Ledgers(None, "mlruns")
    with pytest.raises(ConfigError, match=rf"install fedecado\[{package}\]"):
        open_writers(ledgers, make_run(tmp_path), ABOUT)


def test_the_writers_load_no_torch() -> None:
    assert importlib.util.find_spec("torch") is not None, "it is there to be loaded"
    code = (
        "import sys, fedecado.server.observe.tensorboard, fedecado.server.observe.mlflow;"
        "sys.exit(bool({'torch', 'tensorflow', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0
