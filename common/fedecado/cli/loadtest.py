"""Put a coordinator under load with many simulated workers.

They speak the real protocol, each over a connection of its own, and send synthetic updates instead of
training: no model, data or torch. Without ADDRESS a coordinator is started here for the test, with the
settings of `fedecado coordinator`; its store is removed afterwards. Writes report.html and results.json
into the run's folder and ends with code 1 if a limit was missed. Ctrl-C ends it early and still reports.

Several machines share a test when each has its own --machine; the ids of their workers then differ. With
TLS each worker shows a certificate with its id: write {id} in the names of the files.

Examples:
  fedecado loadtest --workers 1000 --minutes 5
  fedecado loadtest --workers 200 --training-time uniform:0.5,2 --dropouts 0.1 --storm-every 30
  fedecado loadtest --workers 100 --bad-actors nan=3 --bad-actors garbage=3 --min-updates-rate 10
  fedecado loadtest HOST:50051 --workers 2000 --processes 4 --metrics http://HOST:8080/metrics
  FEDECADO_LOADTEST__MACHINE=$JOB_COMPLETION_INDEX fedecado loadtest HOST:50051 --workers 500
"""

import argparse
import asyncio
import json
import os
import platform
import signal
import sys
from pathlib import Path
from typing import Any

from fedecado.cli.admin import address
from fedecado.cli.load_picture import LoadProgress, print_result
from fedecado.cli.load_target import Target, given, started
from fedecado.common.errors import ConfigError
from fedecado.common.sections import (
    AlgorithmSection,
    CoordinatorSection,
    LoadSection,
    LogSection,
    NetworkSection,
    ObserveSection,
    RoundsSection,
    RunSection,
    SolverSection,
)
from fedecado.common.settings import Loaded, Settings
from fedecado.common.timeouts import Timeouts
from fedecado.loadtest.conducting import Conductor, Schedule
from fedecado.loadtest.durations import Durations
from fedecado.loadtest.generator import allow_files
from fedecado.loadtest.generators import Generators
from fedecado.loadtest.limits import Limits, Verdict, judge
from fedecado.loadtest.plan import Plan, deal_mischief
from fedecado.loadtest.record import Record
from fedecado.loadtest.report import page
from fedecado.loadtest.watching import Watch

_FLOAT32 = 4
_INTERRUPTED = 130


class LoadSettings(Settings):
    """What a load test reads; most of it is for a coordinator that is started here."""

    run: RunSection = RunSection(name="loadtest")
    loadtest: LoadSection = LoadSection()
    rounds: RoundsSection = RoundsSection(mode="stream", max_rounds=None)
    solver: SolverSection = SolverSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    coordinator: CoordinatorSection = CoordinatorSection(bind="127.0.0.1:0", linger=None)
    network: NetworkSection = NetworkSection()
    observe: ObserveSection = ObserveSection()
    log: LogSection = LogSection()


SETTINGS = LoadSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "address",
        nargs="?",
        metavar="ADDRESS",
        type=address,
        help="coordinator under test (default: start one)",
    )
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON; - for standard output")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(loaded: Loaded[LoadSettings], args: argparse.Namespace) -> int:
    settings = loaded.settings
    plans = make_plans(settings, "")
    folder = settings.run.directory / settings.run.name
    folder.mkdir(parents=True, exist_ok=True)
    load = settings.loadtest
    bad = sum(len(plan.bad) for plan in plans)
    record = Record(load.workers - bad, bad)
    asyncio.run(_test(loaded, args, record, folder))
    verdicts = judge(record, _limits(load))
    _write(record, verdicts, settings, folder, args)
    if record.ended == "interrupted":
        return _INTERRUPTED
    return 0 if all(verdict.kept for verdict in verdicts) else 1


def make_plans(settings: LoadSettings, target: str, tls: Any = None) -> list[Plan]:
    """What each generator process is to do."""
    load, network = settings.loadtest, settings.network
    Durations.parse(load.training_time)
    if load.processes > load.workers:
        raise ConfigError(f"{load.processes} processes for {load.workers} workers; use fewer")
    base = load.machine * load.workers
    bad = deal_mischief(load.bad_actors, base, load.workers)
    shares = [
        (base + load.workers * n // load.processes, base + load.workers * (n + 1) // load.processes)
        for n in range(load.processes)
    ]
    most = max(end - first for first, end in shares)
    if not allow_files(most):
        raise ConfigError(
            f"a process may not open {most} connections here; raise the limit of open files (ulimit -n), "
            "or use more --processes"
        )
    return [
        Plan(
            target=target,
            first=first,
            count=end - first,
            peer_loss=network.peer_loss,
            tls=tls,
            prefix=load.prefix,
            seed=settings.run.seed,
            parameters=max(1, round(load.model_kb * 1000 / _FLOAT32)),
            training=load.training_time,
            stragglers=load.stragglers,
            straggler_factor=load.straggler_factor,
            dropouts=load.dropouts,
            away=load.away,
            storm_every=load.storm_every,
            storm_share=load.storm_share,
            connect_rate=load.connect_rate / load.processes,
            bad={number: what for number, what in bad.items() if first <= number < end},
        )
        for first, end in shares
    ]


async def _test(loaded: Loaded[LoadSettings], args: argparse.Namespace, record: Record, folder: Path) -> None:
    settings, stopping = loaded.settings, asyncio.Event()
    _stop_on_signals(stopping)
    load, timeouts = settings.loadtest, Timeouts(settings.network.peer_loss)
    target: Target
    async with started(loaded, folder) if args.address is None else given(args.address, settings) as target:
        plans = make_plans(settings, target.address, target.workers_tls)
        schedule = Schedule(60 * load.minutes, load.workers / load.connect_rate + 4 * timeouts.answer)
        async with (
            Watch(target.address, target.admin_tls, pid=target.pid, metrics=load.metrics) as watch,
            Generators(plans, folder, timeouts.drain + timeouts.answer) as generators,
        ):
            with LoadProgress(schedule.measured, quiet=args.quiet) as progress:
                await Conductor(generators, watch, record, progress.show).run(schedule, stopping)


def _stop_on_signals(stopping: asyncio.Event) -> None:
    """The first signal ends the test in good order, the second at once."""
    loop, signals = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        for number in signals:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.default_int_handler)
        stopping.set()

    for number in signals:
        loop.add_signal_handler(number, stop)


def _limits(load: LoadSection) -> Limits:
    return Limits(
        load.max_errors,
        load.min_updates_rate,
        load.min_rounds_rate,
        load.max_push_p99,
        load.max_assign_p99,
        load.max_rss_growth,
        load.max_rss_slope,
    )


def _write(
    record: Record, verdicts: list[Verdict], settings: LoadSettings, folder: Path, args: argparse.Namespace
) -> None:
    facts = {
        "model": f"{settings.loadtest.model_kb:g} kB",
        "training time": settings.loadtest.training_time,
        "cores": os.cpu_count(),
        "machine": platform.platform(),
        "load average": f"{os.getloadavg()[0]:.1f}",
    }
    results = {
        "summary": record.summary(),
        "limits": [verdict.plain() for verdict in verdicts],
        "facts": facts,
        "settings": settings.model_dump(mode="json"),
        "series": record.series(),
    }
    text = json.dumps(results, indent=1) + "\n"
    (folder / "results.json").write_text(text, encoding="utf-8")
    (folder / "report.html").write_text(page(record, verdicts, facts), encoding="utf-8")
    if args.json == "-":
        sys.stdout.write(text)
        return
    if args.json is not None:
        Path(args.json).write_text(text, encoding="utf-8")
    print_result(record, verdicts)
    sys.stdout.write(f"report: {folder / 'report.html'}\n")
