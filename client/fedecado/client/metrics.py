"""A worker's own Prometheus metrics, served by a thread of their own."""

import logging
import math
from ipaddress import ip_address
from typing import Any, Final, final, get_args

from fedecado.client.observer import Answer
from fedecado.client.privacy import Account
from fedecado.client.work import Failed, Measured, Outcome, Trained, Training, Work
from fedecado.common.errors import ConfigError
from fedecado.v1.session_pb2 import WorkerMessage

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
    from prometheus_client.gc_collector import GCCollector
    from prometheus_client.platform_collector import PlatformCollector
    from prometheus_client.process_collector import ProcessCollector
except ModuleNotFoundError as error:
    raise ConfigError(f"metrics need {error.name}; install fedecado[client]") from error

logger = logging.getLogger(__name__)

_SECONDS: Final = (0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600)
_OUTCOMES: Final = {Trained: "trained", Measured: "measured", Failed: "failed"}


@final
class WorkerMetrics:
    """Counts what the worker does. One worker, so no label grows."""

    def __init__(self, worker: str) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, words: str, *labels: str) -> Counter:
            return Counter(f"fedecado_worker_{name}", words, labels, registry=registry)

        def gauge(name: str, words: str) -> Gauge:
            made = Gauge(f"fedecado_worker_{name}", words, registry=registry)
            made.set(math.nan)  # before the first task, 0 would be a claim
            return made

        info = Gauge("fedecado_worker_info", "1, with the worker's name.", ["worker"], registry=registry)
        info.labels(worker).set(1)
        self._connected = gauge("connected", "1 while the coordinator is there.")
        self._connected.set(0)
        self._working = gauge("tasks", "Tasks in hand.")
        self._working.set(0)
        self._tasks = counter("tasks_ended", "Tasks by how they ended.", "outcome")
        self._answers = counter("answers", "What the coordinator said of results.", "outcome")
        for outcome in (*_OUTCOMES.values(), "dropped"):
            self._tasks.labels(outcome)
        for answer in get_args(Answer):
            self._answers.labels(answer)
        self._steps = counter("steps", "Minibatch steps taken.")
        self._samples = counter("samples", "Samples trained on, repeats counted.")
        self._received = counter("received_bytes", "Models and flows received.")
        self._sent = counter("sent_bytes", "Updates sent, repeats counted.")
        self._seconds = Histogram(
            "fedecado_worker_task_duration_seconds", "Computing a task.", buckets=_SECONDS, registry=registry
        )
        self._version = gauge("model_version", "Version that the latest task started from.")
        self._window = gauge("window_time", "T_i of the latest training, in simulated time.")
        self._loss = gauge("loss", "Loss on own data after the latest training.")
        self._held: set[int] = set()
        self._server: Any = None
        for collect in (ProcessCollector, PlatformCollector, GCCollector):
            collect(registry=registry)

    def watch_privacy(self, account: Account) -> None:
        """Show what the updates so far give away; nobody but the worker knows it."""
        for name, words, read in (
            ("privacy_epsilon", "Epsilon of all updates released so far.", lambda: account.epsilon),
            ("privacy_delta", "The delta that epsilon is told for.", lambda: account.delta),
            ("privacy_releases", "Updates released so far, by the account.", lambda: account.releases),
        ):
            Gauge(f"fedecado_worker_{name}", words, registry=self.registry).set_function(read)

    def serve(self, bind: str) -> int:
        """Listen from now on, on this machine alone unless a host is given; the port."""
        host, _, port = bind.rpartition(":")
        host = host.strip("[]") or "127.0.0.1"
        try:
            server, _ = start_http_server(int(port), host, self.registry)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"cannot serve metrics on {bind}: {error}; choose another port") from error
        logger.info("metrics on http://%s:%d/metrics", host, server.server_port)
        if not _is_loopback(host):
            logger.warning("anyone who can reach %s can read this worker's metrics", bind)
        self._server = server
        return int(server.server_port)

    def connected(self, connected: bool) -> None:
        self._connected.set(connected)

    def started(self, work: Work) -> None:
        self._hold(work.header.task_id, True)
        self._version.set(work.header.model_version)
        drift = work.header.drift_bytes if isinstance(work, Training) else 0
        self._received.inc(work.state.nbytes + drift)

    def finished(self, work: Work, outcome: Outcome) -> None:
        self._hold(work.header.task_id, False)
        self._tasks.labels(_OUTCOMES[type(outcome)]).inc()
        if isinstance(outcome, Failed):
            return
        self._seconds.observe(outcome.seconds)
        if isinstance(outcome, Trained):
            self._steps.inc(outcome.steps)
            self._samples.inc(outcome.samples_seen)
            self._window.set(outcome.window)
            self._loss.set(math.nan if outcome.loss_after is None else outcome.loss_after)

    def sending(self, work: Work, message: WorkerMessage) -> None:
        self._sent.inc(message.update.state_bytes)

    def answered(self, task: int, answer: Answer) -> None:
        self._answers.labels(answer).inc()

    def dropped(self, task: int) -> None:
        if task in self._held:
            self._hold(task, False)
            self._tasks.labels("dropped").inc()

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def _hold(self, task: int, held: bool) -> None:
        (self._held.add if held else self._held.discard)(task)
        self._working.set(len(self._held))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
