"""Run a whole federation on this machine: a coordinator and worker processes over real gRPC.

Each client is a process of its own with its own data, learning rate and epochs; one more measures the
versions. Shows the run live, and leaves results, models, logs and a plot in the run's folder. With
--compare other algorithms follow on the same data and the same draws, and a table compares them.
Ctrl-C ends it in good order and keeps what is there.

Examples:
  fedecado up                                        digits, 10 workers, FedECADO
  fedecado up --clients 4 --task my_task:make --rounds 20
  fedecado up --active 5 --rates 0.01,0.1 --epochs 1,10 --compare fedavg,fednova
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from fedecado.cli import render
from fedecado.cli.children import Children
from fedecado.cli.watching import Watcher, history_of
from fedecado.common.errors import ConfigError, FedecadoError
from fedecado.common.names import AlgorithmName
from fedecado.common.private_files import private_folder
from fedecado.common.sections import (
    QUADRATICS,
    AlgorithmSection,
    CoordinatorSection,
    FleetSection,
    LimitsSection,
    LogSection,
    NetworkSection,
    ObserveSection,
    PrivacySection,
    RobustSection,
    RoundsSection,
    RunSection,
    SolverSection,
    StoreSection,
    TaskSection,
    TraceSection,
    TrainingSection,
    UploadSection,
    UpSection,
    WorkerSection,
)
from fedecado.common.settings import Loaded, Settings
from fedecado.common.timeouts import Timeouts
from fedecado.server import configure
from fedecado.server.store import has_run, set_aside
from fedecado.simulator.fleet import Profile, draw_fleet
from fedecado.simulator.history import History

LAST_NEWS_SECONDS = 10.0
"""So long the end of a run may take to be seen here after its workers have ended."""
START_SECONDS = 120.0
"""A coordinator that does not listen by then will not."""


class UpSettings(Settings):
    """What a federation on this machine reads: everything but the simulator's own."""

    run: RunSection = RunSection(name="up")
    fleet: FleetSection = FleetSection()
    up: UpSection = UpSection()
    task: TaskSection = TaskSection()
    rounds: RoundsSection = RoundsSection()
    solver: SolverSection = SolverSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    robust: RobustSection = RobustSection()
    training: TrainingSection = TrainingSection()
    privacy: PrivacySection = PrivacySection()
    coordinator: CoordinatorSection = CoordinatorSection(bind="127.0.0.1:0")
    store: StoreSection = StoreSection()
    worker: WorkerSection = WorkerSection()
    upload: UploadSection = UploadSection()
    network: NetworkSection = NetworkSection()
    limits: LimitsSection = LimitsSection()
    observe: ObserveSection = ObserveSection()
    trace: TraceSection = TraceSection()
    log: LogSection = LogSection()


SETTINGS = UpSettings


def run(loaded: Loaded[UpSettings], _: argparse.Namespace) -> int:
    settings = loaded.settings
    if settings.task.factory == QUADRATICS:
        raise ConfigError("quadratics are for fedecado simulate; give up another --task")
    if settings.privacy.record is not None:
        raise ConfigError("privacy.record belongs to one worker; leave it out where several are started")
    folder = settings.run.directory / settings.run.name
    names = list(dict.fromkeys([settings.run.algorithm, *settings.up.compare]))
    histories: dict[str, History] = {}
    try:
        for name in names:
            place = folder / name if len(names) > 1 else folder
            histories[name] = asyncio.run(interruptible(federate(loaded, name, place)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.stderr.write("stopped; what was done is kept\n")
    if not histories:
        return 130
    _report(histories, folder)
    return 0


async def interruptible(work: Coroutine[Any, Any, History]) -> History:
    """SIGTERM ends this as Ctrl-C does, or the processes would outlive it."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine that runs has one
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work


async def federate(loaded: Loaded[UpSettings], algorithm: AlgorithmName, folder: Path) -> History:
    """One run with its processes, from start to end."""
    settings = loaded.settings
    if has_run(folder):
        set_aside(folder)
    config = _write_config(loaded, folder)
    common = ["--config", str(config), "--algorithm", algorithm]
    patience = Timeouts(settings.network.peer_loss).drain
    async with Children(folder, patience) as children:
        began = time.perf_counter()
        await children.start("coordinator", _coordinator(common, folder, settings), speaks=True)
        line = await children.first_line("coordinator", START_SECONDS)
        address = line.split()[-1]
        if (bind := settings.observe.bind) is not None:
            where = f"see {children.log('coordinator')}" if bind.endswith(":0") else f"http://{bind}"
            sys.stderr.write(f"dashboard: {where}\n")
        for index, profile in enumerate(_profiles(settings)):
            await children.start(f"worker-{index}", _worker(config, address, index, profile, settings))
        if settings.up.evaluator:
            await children.start("evaluator", _worker(config, address, 0, None, settings))
        async with Watcher(address, settings.rounds.max_rounds) as watcher:
            await _watch(watcher, children, settings.fleet.clients)
            history = history_of(await watcher.rounds(), await watcher.clients())
        history.seconds = time.perf_counter() - began
        history.settings = settings.model_dump(mode="json")
        history.save(folder / "results.json")
    return history


async def _watch(watcher: Watcher, children: Children, clients: int) -> None:
    """Show the run until it is over; fail if it cannot go on."""
    workers = [f"worker-{i}" for i in range(clients)]
    showing = asyncio.create_task(watcher.show())
    alive = ["coordinator", *workers]
    try:
        while not showing.done():
            ended = asyncio.create_task(children.any_ended(alive))
            await asyncio.wait((showing, ended), return_when=asyncio.FIRST_COMPLETED)
            if showing.done():
                ended.cancel()
            else:
                name = await ended
                alive.remove(name)
                if name == "coordinator" or await _is_the_end(name, watcher, children, showing):
                    raise children.failure(name)
        await showing
    finally:
        showing.cancel()


async def _is_the_end(name: str, watcher: Watcher, children: Children, showing: "asyncio.Task[None]") -> bool:
    """Whether the run cannot go on without the worker that has just ended."""
    if children.alive("worker-"):
        # Before the first round everyone is waited for.
        return children.failed(name) and not watcher.begun
    # They all end with the run, and the watcher may be about to see that.
    await asyncio.wait((showing,), timeout=LAST_NEWS_SECONDS)
    return not showing.done()


def _write_config(loaded: Loaded[UpSettings], folder: Path) -> Path:
    """The effective settings as a file for the processes, and for people who wonder later."""
    private_folder(folder)
    config = folder / "config.toml"
    config.write_text(render.to_toml(render.entries(loaded)), encoding="utf-8")
    return config


def _coordinator(common: list[str], folder: Path, settings: UpSettings) -> list[str]:
    return [
        "coordinator",
        *common,
        "--directory",
        str(folder.parent),
        "--name",
        folder.name,
        # Everyone is waited for, so that runs with other algorithms see the same draws.
        "--rounds-min-clients",
        str(max(settings.rounds.min_clients, settings.fleet.clients)),
        # Where workers choose their steps by a tolerance, the centre does by the same one.
        "--solver-tolerance",
        repr(configure.one_tolerance(settings.solver, settings.training).tolerance),
        # It stays until its rounds have been read.
        "--linger",
        "none",
    ]


def _worker(
    config: Path, address: str, index: int, profile: Profile | None, settings: UpSettings
) -> list[str]:
    """The command line of a trainer, or of the evaluator when there is no profile."""
    share = ["--index", str(index), "--clients", str(settings.fleet.clients)]
    command = ["worker", "--config", str(config), "--coordinator", address, *share]
    # A port has room for one process, and that is the coordinator.
    command += ["--network-health-bind", "none"]
    # Many processes on few cores: more threads each would only get in each other's way.
    threads = settings.worker.threads or max(1, (os.cpu_count() or 1) // settings.fleet.clients)
    command += ["--worker-threads", str(threads)]
    if profile is None:
        return [*command, "--role", "evaluator", "--worker-id", "evaluator"]
    rate, epochs = repr(profile.rate), str(profile.epochs)
    return [*command, "--worker-id", f"worker-{index}", "--training-rate", rate, "--training-epochs", epochs]


def _profiles(settings: UpSettings) -> tuple[Profile, ...]:
    """The workers' learning rates and epochs, drawn as the simulator draws them."""
    fleet, training = settings.fleet, settings.training
    return draw_fleet(
        fleet.clients,
        fleet.rates or [training.rate] * 2,
        fleet.epochs or [training.epochs] * 2,
        seed=settings.run.seed,
    ).profiles


def _report(histories: dict[str, History], folder: Path) -> None:
    """A table of final metrics and a plot."""
    from rich.console import Console
    from rich.table import Table

    metrics = sorted({name for history in histories.values() for name in history.metrics()})
    table = Table(title="Result")
    for column in ("algorithm", *metrics, "rounds", "seconds"):
        table.add_column(column, justify="left" if column == "algorithm" else "right")
    for name, history in histories.items():
        values = [f"{history.metrics().get(metric, float('nan')):.4f}" for metric in metrics]
        table.add_row(name, *values, str(len(history.rounds)), f"{history.seconds:.1f}")
    Console().print(table)
    try:
        from fedecado.simulator.plot import plot

        plot(histories, folder / "plot.png")
        sys.stdout.write(f"plot: {folder / 'plot.png'}\n")
    except FedecadoError as error:
        sys.stderr.write(f"no plot: {error}\n")
    sys.stdout.write(f"models, logs and results: {folder}\n")
