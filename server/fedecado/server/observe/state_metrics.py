"""What a run simply is (workers, queues, versions, disk), read at the moment of a scrape."""

import math
from collections import Counter as Tally
from collections.abc import Iterator
from typing import final, get_args

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fedecado.server.coordinator.about import About
from fedecado.server.coordinator.run import Run
from fedecado.server.observe.rows import WorkerState, worker_state
from fedecado.server.rounds.ledger import Phase

QUALITIES = 20
"""Metrics of the user's own that are passed on; names beyond these are left out."""

STATISTICS = {"min": 0.0, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
"""Quantiles of the clients' flows by name; the label `quantile` is for summaries alone."""


@final
class StateCollector(Collector):
    """What the run is at the moment of a scrape."""

    def __init__(self, run: Run, about: About) -> None:
        self._run, self._about = run, about
        self.store_bytes: float = math.nan
        self.free_bytes: float = math.nan

    def collect(self) -> Iterator[Metric]:
        run, journal = self._run, self._run.journal
        about = GaugeMetricFamily(
            "fedecado_run_info",
            "1, with what is known about the run.",
            labels=["run", "algorithm", "mode", "version"],
        )
        about.add_metric(
            [self._about.name, self._about.algorithm, run.engine.rules.mode, self._about.software], 1
        )
        yield about
        for name, words, value in (
            ("model_version", "Newest version of the model.", run.engine.version),
            ("model_parameters", "Trainable parameters.", 0 if run.layout is None else run.layout.parameters),
            ("start_time_seconds", "When the run started, since the epoch.", journal.started),
            (
                "round_opened_time_seconds",
                "When the open round opened, since the epoch.",
                journal.round_opened,
            ),
            ("paused", "1 while the run is paused.", run.engine.paused),
            ("finished", "1 once the run is over.", run.engine.finished is not None),
        ):
            yield GaugeMetricFamily(f"fedecado_{name}", words, value=float(value))
        if run.federation is not None:
            yield GaugeMetricFamily(
                "fedecado_simulated_time", "Sum of the windows T so far.", value=run.federation.simulated_time
            )
        yield CounterMetricFamily("fedecado_sent_bytes", "Models and flows sent.", value=journal.bytes_sent)
        yield CounterMetricFamily(
            "fedecado_received_bytes", "Updates received.", value=journal.bytes_received
        )
        yield from self._people()
        yield self._tasks()
        yield self._quality()
        yield self._flows()
        yield from self._queues()
        yield from self._disk()

    def _people(self) -> Iterator[Metric]:
        members = self._run.members.by_id.values()
        tally = Tally((member.trains, worker_state(self._run, member)) for member in members)
        workers = GaugeMetricFamily(
            "fedecado_workers", "Workers by role and state.", labels=["role", "state"]
        )
        for trains, role in ((True, "trainer"), (False, "evaluator")):
            for state in get_args(WorkerState):
                workers.add_metric([role, state], tally[trains, state])
        yield workers

    def _flows(self) -> Metric:
        """Over all clients, whatever their number: which one is the worst, the page tells."""
        flows = [m.last_flow for m in self._run.members.by_id.values() if m.last_flow is not None]
        family = GaugeMetricFamily(
            "fedecado_client_flow_rms", "RMS of the flows I_i over all clients.", labels=["statistic"]
        )
        values = np.quantile(flows or [math.nan], list(STATISTICS.values()))
        for name, value in zip(STATISTICS, values, strict=True):
            family.add_metric([name], float(value))
        return family

    def _queues(self) -> Iterator[Metric]:
        members = self._run.members.by_id.values()
        queued = [member.session.queued for member in members if member.session is not None]
        yield GaugeMetricFamily("fedecado_outbox_parcels", "Parcels waiting to be sent.", value=sum(queued))
        yield GaugeMetricFamily(
            "fedecado_outbox_parcels_max", "Parcels in the fullest outbox.", value=max(queued, default=0)
        )

        jobs = GaugeMetricFamily(
            "fedecado_background_jobs", "Jobs waiting or at work beside the event loop.", labels=["thread"]
        )
        for thread in ("numerics", "files"):
            jobs.add_metric([thread], self._run.beside.queued[thread])
        yield jobs
        yield GaugeMetricFamily(
            "fedecado_store_waiting_messages",
            "Messages that wait until what they follow from is on disk.",
            value=self._run.durable.waiting,
        )

    def _disk(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("fedecado_store_bytes", "Size of the run's folder.", value=self.store_bytes)
        yield GaugeMetricFamily(
            "fedecado_store_free_bytes", "Room left where the run's folder is.", value=self.free_bytes
        )

    def _tasks(self) -> Metric:
        tally = Tally(task.phase for task in self._run.engine.tasks.values())
        tasks = GaugeMetricFamily("fedecado_tasks", "Open tasks by phase.", labels=["phase"])
        for phase in get_args(Phase):
            tasks.add_metric([phase], tally[phase])
        return tasks

    def _quality(self) -> Metric:
        quality = GaugeMetricFamily("fedecado_quality", "Latest value of each metric.", labels=["metric"])
        latest = self._run.journal.latest
        for name, value in list({} if latest is None else latest.metrics.items())[:QUALITIES]:
            quality.add_metric([name], value)
        return quality
