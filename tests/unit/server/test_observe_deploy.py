"""The alert rules and the Grafana board speak of metrics that exist, and the alerts go off."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from observe_driving import ABOUT, closed_round, make_run

from fedecado.server.coordinator.journal import Measurement
from fedecado.server.observe.metrics import RunMetrics
from fedecado.server.observe.observer import Window

COMPONENTS = Path(__file__).parents[3] / "deploy" / "components"
ALERTS = COMPONENTS / "prometheus" / "alerts.yaml"
BOARD = COMPONENTS / "grafana" / "grafana-dashboard.json"

CASES = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {{series: 'fedecado_run_info{{job="f", instance="i"}}', values: '1x60'}}
      - {{series: 'fedecado_finished{{job="f", instance="i"}}', values: '0x60'}}
      - {{series: 'fedecado_paused{{job="f", instance="i"}}', values: '0x60'}}
      - {{series: 'fedecado_round_opened_time_seconds{{job="f", instance="i"}}', values: '0x60'}}
      - {{series: 'fedecado_workers{{job="f", instance="i", {role}, state="working"}}', values: '0x60'}}
      - {{series: 'fedecado_workers{{job="f", instance="i", {role}, state="offline"}}', values: '4x60'}}
      - {{series: 'fedecado_central_rate{{job="f", instance="i"}}', values: '_x5 1x10 200x60'}}
    alert_rule_test:
      - {{eval_time: 20m, alertname: FedecadoRoundStuck, exp_alerts: []}}
      - {{eval_time: 50m, alertname: FedecadoRoundStuck, exp_alerts: [{{exp_labels: {{job: f, instance: i,
          severity: warning}}, exp_annotations: {{summary: A round has been open for 50m 0s., description:
          fedecado status says what it waits for; rounds.deadline would close it with what is there.}}}}]}}
      - {{eval_time: 30m, alertname: FedecadoNoWorkers, exp_alerts: [{{exp_labels: {{job: f, instance: i,
          severity: warning}}, exp_annotations: {{summary: No trainer is connected., description:
          "Look at the workers' logs; fedecado doctor checks the way to the coordinator."}}}}]}}
      - {{eval_time: 55m, alertname: FedecadoDiverges, exp_alerts: [{{exp_labels: {{job: f, instance: i,
          severity: warning}}, exp_annotations: {{summary: The centre moves 100 times faster than it
          once did., description: "Training diverges, or the clients' data has changed."}}}}]}}
      - {{eval_time: 50m, alertname: FedecadoCoordinatorGone, exp_alerts: []}}
"""


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    return found


def check(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def expressions() -> list[str]:
    panels = json.loads(BOARD.read_text(encoding="utf-8"))["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    return [*queries, ALERTS.read_text(encoding="utf-8")]


def test_every_metric_of_the_board_and_the_alerts_exists(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.journal.measurements.append(Measurement(1, {"accuracy": 0.9}))
    metrics = RunMetrics(run, ABOUT)
    metrics.updated("accepted")
    metrics.closed(closed_round(1), (Window("a", 0.5, 0),))
    text = metrics.scrape()[0].decode()
    exposed = set(re.findall(r"^(\w+)", text, re.MULTILINE))
    used = {name for text in expressions() for name in re.findall(r"\b(?:fedecado|process)_\w+", text)}
    # The simulated time is known once there is a model, and this run has none.
    assert used - exposed <= {"fedecado_simulated_time"}
    assert len(used) > 20


def test_no_panel_lies_over_another() -> None:
    panels = json.loads(BOARD.read_text(encoding="utf-8"))["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_rules_are_valid(promtool: str) -> None:
    check(promtool, "check", "rules", str(ALERTS))


def test_alerts_go_off_when_they_should_and_not_before(promtool: str, tmp_path: Path) -> None:
    cases = tmp_path / "cases.yaml"
    cases.write_text(CASES.format(rules=ALERTS, role='role="trainer"'), encoding="utf-8")
    check(promtool, "test", "rules", str(cases))
