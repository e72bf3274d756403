"""The run as Prometheus metrics.

What happens is counted when it happens; what simply is (workers, queues, versions) is read when someone
scrapes. No label holds a worker's id or any other name that grows with the run. Simulated time has no
unit, so its names end in `_time`, not in `_seconds`.
"""

import math
from typing import final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from fedecado.server.coordinator.about import About
from fedecado.server.coordinator.journal import ClosedRound, Measurement
from fedecado.server.coordinator.refusals import SESSION_REASONS
from fedecado.server.coordinator.run import Run
from fedecado.server.observe.observer import Outcome, Window
from fedecado.server.observe.plain import imbalance
from fedecado.server.observe.state_metrics import StateCollector
from fedecado.server.store import Flush

Buckets = tuple[float, ...]

_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_TIMES = tuple(m * 10.0**e for e in range(-4, 4) for m in (1, 2, 5))
_VERSIONS = (0, 1, 2, 3, 5, 8, 13, 20, 50, 100)
_LAGS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


@final
class RunMetrics:
    """Counts a run's events, and reads its state when scraped."""

    def __init__(self, run: Run, about: About) -> None:
        self._registry = registry = CollectorRegistry()

        def counter(name: str, words: str, *labels: str) -> Counter:
            return Counter(f"fedecado_{name}", words, labels, registry=registry)

        def histogram(name: str, words: str, buckets: Buckets, *labels: str) -> Histogram:
            return Histogram(f"fedecado_{name}", words, labels, buckets=buckets, registry=registry)

        self._updates = counter("updates", "Updates by outcome.", "outcome", "reason")
        refused = counter("sessions_refused", "Sessions refused, or ended for what they sent.", "reason")
        self._refused = {reason: refused.labels(reason) for reason in SESSION_REASONS}
        rounds = counter("rounds", "Rounds by how they closed.", "closed_by")
        self._rounds = {how: rounds.labels(how) for how in ("target", "deadline", "discarded")}
        self._round = histogram("round_duration_seconds", "From opening to new version.", _SECONDS)
        phases = histogram("round_phase_duration_seconds", "Parts of a round.", _SECONDS, "phase")
        self._collect, self._compute = phases.labels("collect"), phases.labels("solve")
        self._staleness = histogram("update_staleness_versions", "Versions behind the newest.", _VERSIONS)
        self._windows = histogram("update_window_time", "Windows T_i, in simulated time.", _TIMES)
        self._saves = histogram("save_duration_seconds", "Writing a model.", _SECONDS)
        self._save_failures = counter("save_failures", "Models that could not be written.")
        flushes = histogram("store_flush_duration_seconds", "Waiting for the disk.", _SECONDS, "what")
        self._flushes = {what: flushes.labels(what) for what in get_args(Flush)}
        self._lag = histogram("event_loop_lag_seconds", "Worst lag in every half second.", _LAGS)
        self._solve = _Solve(registry)
        self.state = StateCollector(run, about)
        registry.register(self.state)
        for collect in (ProcessCollector, PlatformCollector, GCCollector):
            collect(registry=registry)

    def updated(self, outcome: Outcome, reason: str = "") -> None:
        self._updates.labels(outcome, reason).inc()

    def refused(self, reason: str) -> None:
        self._refused[reason].inc()

    def closed(self, closed: ClosedRound, windows: tuple[Window, ...]) -> None:
        self._rounds["deadline" if closed.late else "target"].inc()
        seconds = max(0.0, closed.closed - closed.opened)
        self._round.observe(seconds)
        self._collect.observe(max(0.0, seconds - closed.solve_seconds))
        self._compute.observe(closed.solve_seconds)
        for window in windows:
            self._windows.observe(window.time)
            self._staleness.observe(window.behind)
        self._solve.closed(closed, windows)

    def discarded(self) -> None:
        self._rounds["discarded"].inc()

    def saved(self, seconds: float, *, failed: bool) -> None:
        self._saves.observe(seconds)
        self._save_failures.inc(int(failed))

    def measured(self, measurement: Measurement) -> None:
        pass  # read from the journal when scraped

    def flushed(self, what: Flush, seconds: float) -> None:
        self._flushes[what].observe(seconds)

    def lagged(self, seconds: float) -> None:
        """The event loop was late by so much, at worst, since the last call."""
        self._lag.observe(seconds)

    def scrape(self) -> tuple[bytes, str]:
        """Everything as text, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4


@final
class _Solve:
    """What the central solve of the latest round was like."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, words: str) -> Gauge:
            made = Gauge(f"fedecado_{name}", words, registry=registry)
            made.set(math.nan)  # before the first round, 0 would be a claim
            return made

        steps = Counter("fedecado_solver_steps", "Steps of the central solve.", ["result"], registry=registry)
        factors = Counter(
            "fedecado_solver_lu_lookups", "LU factors looked up.", ["result"], registry=registry
        )
        self._counters = {
            "steps": steps.labels("accepted"),
            "rejected_steps": steps.labels("rejected"),
            "floored_steps": steps.labels("floored"),
            "lu_hits": factors.labels("hit"),
            "lu_misses": factors.labels("miss"),
        }
        self._gauges = {
            "shortest_step": gauge("solver_shortest_step_time", "Shortest dt of the latest round."),
            "step_level": gauge("solver_step_level", "m: the next step is T / 2^m."),
            "truncation_error": gauge("solver_truncation_error", "Largest error of an accepted step."),
            "distrusted": gauge("round_distrusted", "Clients of the latest round who were not believed."),
            "stretch": gauge("round_stretch_ratio", "T over the clients' windows of late."),
            "trust": gauge("flow_trust_ratio", "c: share of their flows that acts within clients' windows."),
            "central_change": gauge("central_change", "RMS of what the latest round moved x_c by."),
        }
        self._window = gauge("round_window_time", "T: the common time of the latest round.")
        self._spread = gauge("round_window_spread_ratio", "Longest T_i over the shortest, latest round.")
        self._rate = gauge("central_rate", "RMS of dx_c/dt after the latest round.")
        self._imbalance = gauge("flow_imbalance", "RMS of the sum of all flows; 0 at rest.")

    def closed(self, closed: ClosedRound, windows: tuple[Window, ...]) -> None:
        self._window.set(closed.window)
        times = [window.time for window in windows]
        self._spread.set(max(times) / min(times) if times else math.nan)
        self._rate.set(closed.rate)
        for name, counter in self._counters.items():
            counter.inc(closed.details.get(name, 0))
        for name, gauge in self._gauges.items():
            gauge.set(closed.details.get(name, math.nan))
        balance = imbalance(closed.rate, closed.details)
        self._imbalance.set(math.nan if balance is None else balance)
