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
from fedecado.server.observe.metrics import QUALITIES, RunMetrics
from fedecado.server.observe.observer import Window

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
        add_member(run, f"worker-{number}")
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
