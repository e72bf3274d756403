"""Metrics count what happens, show what is, and do not grow with the workers."""

import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from observe_driving import ABOUT, add_member, closed_round, make_run
from prometheus_client.parser import text_string_to_metric_families

from fedecado.server.coordinator.journal import Measurement
from fedecado.server.coordinator.run import Run
from fedecado.server.observe.disk import measure
from fedecado.server.observe.metrics import RunMetrics
from fedecado.server.observe.observer import Window
from fedecado.server.observe.state_metrics import QUALITIES

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path)


@pytest.fixture
def metrics(run: Run) -> RunMetrics:
    return RunMetrics(run, ABOUT)


def scrape(metrics: RunMetrics) -> Samples:
    text, kind = metrics.scrape()
    assert kind.startswith("text/plain")
    families = text_string_to_metric_families(text.decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


def test_a_closed_round_is_counted_timed_and_described(metrics: RunMetrics) -> None:
    metrics.closed(closed_round(1), (Window("a", 0.5, 0), Window("b", 1.0, 3)))
    metrics.closed(closed_round(2, late=True), ())
    metrics.discarded()
    found = scrape(metrics)
    rounds = {
        labels[0][1]: value for (name, labels), value in found.items() if name == "fedecado_rounds_total"
    }
    assert rounds == {"target": 1, "deadline": 1, "discarded": 1}
    assert found["fedecado_round_duration_seconds_sum", ()] == 14
    assert found["fedecado_round_phase_duration_seconds_sum", (("phase", "solve"),)] == 4
    assert found["fedecado_round_phase_duration_seconds_sum", (("phase", "collect"),)] == 10
    assert found["fedecado_update_window_time_sum", ()] == 1.5
    assert found["fedecado_update_staleness_versions_sum", ()] == 3
    assert found["fedecado_solver_steps_total", (("result", "rejected"),)] == 2
    assert found["fedecado_solver_lu_lookups_total", (("result", "hit"),)] == 8
    assert found["fedecado_central_rate", ()] == 0.5
    assert found["fedecado_flow_imbalance", ()] == 1.0
    assert found["fedecado_solver_shortest_step_time", ()] == 0.25


def test_what_a_round_did_to_the_centre_and_how_its_windows_differ_is_shown(metrics: RunMetrics) -> None:
    metrics.closed(closed_round(1), (Window("a", 0.25, 0), Window("b", 1.0, 3)))
    found = scrape(metrics)
    assert found["fedecado_central_change", ()] == 0.125
    assert found["fedecado_round_window_spread_ratio", ()] == 4.0


def test_the_strength_of_all_flows_is_told_by_a_few_quantiles(run: Run, metrics: RunMetrics) -> None:
    flows = {labels[0][1]: v for (name, labels), v in scrape(metrics).items() if "flow_rms" in name}
    assert len(flows) == 5 and all(map(math.isnan, flows.values())), "no client has a flow yet"
    for number in range(101):
        add_member(run, f"worker-{number}").last_flow = number / 100
    add_member(run, "new")  # has no flow yet, which is not a flow of zero
    flows = {labels[0][1]: v for (name, labels), v in scrape(metrics).items() if "flow_rms" in name}
    assert flows == pytest.approx({"min": 0, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1})


def test_waits_for_the_disk_are_timed_by_what_was_flushed(metrics: RunMetrics) -> None:
    metrics.flushed("database", 0.01)
    metrics.flushed("file", 0.3)
    found = scrape(metrics)
    assert found["fedecado_store_flush_duration_seconds_sum", (("what", "file"),)] == 0.3
    assert found["fedecado_store_flush_duration_seconds_count", (("what", "database"),)] == 1
    assert found["fedecado_store_flush_duration_seconds_count", (("what", "folder"),)] == 0


def test_the_size_of_a_runs_folder_is_that_of_all_files_in_it(tmp_path: Path) -> None:
    assert measure(tmp_path / "none") is None
    (tmp_path / "vectors").mkdir()
    (tmp_path / "store.sqlite").write_bytes(bytes(1000))
    (tmp_path / "vectors" / "flow-1").write_bytes(bytes(234))
    found = measure(tmp_path)
    assert found is not None and found.used == 1234 and found.free > 0


def test_before_the_first_round_the_solver_claims_nothing(metrics: RunMetrics) -> None:
    assert math.isnan(scrape(metrics)["fedecado_central_rate", ()]), "no alert compares NaN"


def test_updates_are_counted_by_outcome_and_reason(metrics: RunMetrics) -> None:
    metrics.updated("accepted")
    metrics.updated("refused", "non_finite")
    metrics.updated("refused", "non_finite")
    found = scrape(metrics)
    assert found["fedecado_updates_total", (("outcome", "refused"), ("reason", "non_finite"))] == 2
    assert found["fedecado_updates_total", (("outcome", "accepted"), ("reason", ""))] == 1


def test_saves_and_the_loops_lag_are_timed(metrics: RunMetrics) -> None:
    metrics.saved(0.3, failed=False)
    metrics.saved(0.2, failed=True)
    metrics.lagged(0.02)
    found = scrape(metrics)
    assert found["fedecado_save_duration_seconds_count", ()] == 2
    assert found["fedecado_save_failures_total", ()] == 1
    assert found["fedecado_event_loop_lag_seconds_bucket", (("le", "0.025"),)] == 1
    assert found["process_resident_memory_bytes", ()] > 1e6


def test_ten_thousand_workers_make_no_more_series_than_one(run: Run, metrics: RunMetrics) -> None:
    add_member(run, "worker-0")
    few = scrape(metrics)
    for number in range(1, 10_000):
        add_member(run, f"worker-{number}").last_flow = 1.0 / number
        metrics.closed(closed_round(number), (Window(f"worker-{number}", number / 7, number % 30),))
    many = scrape(metrics)
    assert few.keys() == many.keys()
    assert sum(value for (name, _), value in many.items() if name == "fedecado_workers") == 10_000
    assert "worker-" not in metrics.scrape()[0].decode()


def test_a_tasks_own_metrics_are_shown_but_not_without_end(run: Run, metrics: RunMetrics) -> None:
    run.journal.measurements.append(Measurement(1, {f"m{i}": float(i) for i in range(1000)}))
    found = [labels for name, labels in scrape(metrics) if name == "fedecado_quality"]
    assert len(found) == QUALITIES


def test_names_follow_the_conventions(run: Run, metrics: RunMetrics) -> None:
    metrics.closed(closed_round(1), (Window("a", 0.5, 0),))
    names = {family.name for family in text_string_to_metric_families(metrics.scrape()[0].decode())}
    own = {name for name in names if name.startswith("fedecado_")}
    assert len(own) > 25
    assert not [name for name in own if not re.fullmatch(r"fedecado_[a-z_]+", name)]
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus); the rest held")
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=metrics.scrape()[0], capture_output=True, check=False
    )
    assert checked.returncode == 0, (checked.stdout + checked.stderr).decode()
