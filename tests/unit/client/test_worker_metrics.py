"""A worker's own metrics, read over HTTP as Prometheus reads them."""

import urllib.request
from collections.abc import Iterator

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fedecado.client.metrics import WorkerMetrics
from fedecado.client.privacy import Account
from fedecado.client.work import Failed, Trained, Training
from fedecado.common.errors import ConfigError
from fedecado.v1.session_pb2 import Assign, Update, WorkerMessage

STATE = np.zeros(100, np.float32)


@pytest.fixture
def metrics() -> Iterator[WorkerMetrics]:
    made = WorkerMetrics("w1")
    yield made
    made.close()
    made.close()


def scrape(port: int) -> dict[str, float]:
    url = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(url, timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {
            s.name + "".join(f",{value}" for value in s.labels.values()): s.value
            for family in families
            for s in family.samples
        }


def trained(seconds: float) -> Trained:
    return Trained(STATE, 0.5, 1.0, 20, 640, 2.0, 1.5, None, seconds)


def test_tasks_are_counted_and_timed_from_arrival_to_answer(metrics: WorkerMetrics) -> None:
    port = metrics.serve("0")
    first, second, third = (
        Training(Assign(task_id=k, model_version=4, drift_bytes=STATE.nbytes), STATE, STATE)
        for k in (1, 2, 3)
    )
    metrics.connected(True)
    for work in (first, second, third):
        metrics.started(work)
    metrics.finished(first, trained(0.2))
    metrics.sending(first, WorkerMessage(update=Update(state_bytes=400)))
    metrics.answered(1, "accepted")
    metrics.finished(second, Failed("ValueError", "no data", ""))
    found = scrape(port)
    assert found["fedecado_worker_connected"] == 1
    assert found["fedecado_worker_tasks"] == 1, "the third is in hand"
    assert found["fedecado_worker_tasks_ended_total,trained"] == 1
    assert found["fedecado_worker_tasks_ended_total,failed"] == 1
    assert found["fedecado_worker_answers_total,accepted"] == 1
    assert found["fedecado_worker_answers_total,refused"] == 0
    assert found["fedecado_worker_steps_total"] == 20 and found["fedecado_worker_samples_total"] == 640
    assert found["fedecado_worker_received_bytes_total"] == 3 * 800
    assert found["fedecado_worker_sent_bytes_total"] == 400
    assert found["fedecado_worker_task_duration_seconds_sum"] == pytest.approx(0.2)
    assert (found["fedecado_worker_model_version"], found["fedecado_worker_window_time"]) == (4, 0.5)
    metrics.dropped(3)
    metrics.dropped(3)
    found = scrape(port)
    assert found["fedecado_worker_tasks_ended_total,dropped"] == 1 and found["fedecado_worker_tasks"] == 0


def test_what_updates_give_away_is_shown_as_the_account_has_it(metrics: WorkerMetrics) -> None:
    account = Account(1e-5)
    metrics.watch_privacy(account)
    port = metrics.serve("0")
    assert scrape(port)["fedecado_worker_privacy_epsilon"] == 0
    for _ in range(20):
        account.spend(8.0)
    found = scrape(port)
    assert found["fedecado_worker_privacy_epsilon"] == account.epsilon == pytest.approx(5.0, abs=0.1)
    assert (found["fedecado_worker_privacy_delta"], found["fedecado_worker_privacy_releases"]) == (1e-5, 20)


def test_a_port_in_use_is_said_so(metrics: WorkerMetrics) -> None:
    port = metrics.serve("127.0.0.1:0")
    with pytest.raises(ConfigError, match=f"cannot serve metrics on {port}: .*choose another port"):
        WorkerMetrics("w2").serve(str(port))
