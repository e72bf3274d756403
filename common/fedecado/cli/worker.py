"""Train on this machine's data for a coordinator.

The worker connects, enrols with the size of its data and the curvature of its loss, trains what it is
given and reports; it goes on until the run ends. It outlives its coordinator and its network: it
trains on while it is cut off, reconnects for ever and sends what it finished meanwhile. SIGTERM or
Ctrl-C end it in good order, a second Ctrl-C at once. Hints of the coordinator (learning rate, epochs,
batch size) apply where no such setting is given here. With --worker-spool DIR an update that is finished
survives the end of the worker itself: started again, it delivers that first. Over a slow line
--upload-format int8 sends a quarter of the bytes, rounded.

Examples:
  fedecado worker --coordinator train.example.org:50051
  fedecado worker --index 3 --clients 20                   the fourth of twenty shares of the digits
  fedecado worker --role evaluator                         measure models on the test set
  fedecado worker --task my_project.task:make --task-arg path=/data --training-rate 0.01
  fedecado worker --join-address train.example.org:50052 --join-token-file worker-3.token
  fedecado worker --worker-id site-4 --worker-spool /var/lib/fedecado
  FEDECADO_WORKER__INDEX=$JOB_COMPLETION_INDEX fedecado worker --clients 20
"""

import argparse
import logging
import platform
import secrets
import socket
from importlib.metadata import version
from typing import TYPE_CHECKING

from fedecado.common.allocator import keep_chunk_buffers
from fedecado.common.errors import ConfigError
from fedecado.common.loading import loading
from fedecado.common.logs import identify, setup_logging
from fedecado.common.sections import (
    QUADRATICS,
    JoinSection,
    LogSection,
    NetworkSection,
    PrivacySection,
    RunSection,
    TaskSection,
    TraceSection,
    TrainingSection,
    UploadSection,
    WorkerSection,
)
from fedecado.common.settings import DEFAULT, Loaded, Settings
from fedecado.common.timeouts import Timeouts
from fedecado.common.tls import require_safe_target

if TYPE_CHECKING:
    from fedecado.client.credential import Credential
    from fedecado.client.observer import Observers
    from fedecado.client.privacy import Guard
    from fedecado.client.trainer import Trainer
    from fedecado.client.work import Identity


log = logging.getLogger(__name__)


class WorkerSettings(Settings):
    """What a worker reads."""

    run: RunSection = RunSection()
    task: TaskSection = TaskSection()
    training: TrainingSection = TrainingSection()
    privacy: PrivacySection = PrivacySection()
    worker: WorkerSection = WorkerSection()
    upload: UploadSection = UploadSection()
    network: NetworkSection = NetworkSection()
    join: JoinSection = JoinSection()
    trace: TraceSection = TraceSection()
    log: LogSection = LogSection()


SETTINGS = WorkerSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # Not the setting's own flag: `fedecado config` knows both this one and the simulator's.
    parser.add_argument(
        "--clients",
        dest="worker.clients",
        default=argparse.SUPPRESS,
        metavar="N",
        help="short for --worker-clients",
    )


def run(loaded: Loaded[WorkerSettings], args: argparse.Namespace) -> int:
    with loading():
        from fedecado.client.connection import Address
        from fedecado.client.running import run_process
        from fedecado.client.spool import Spool
        from fedecado.client.surroundings import Surroundings
        from fedecado.client.work import Identity

    settings = loaded.settings
    keep_chunk_buffers()
    setup_logging(settings.log.level, json=settings.log.format == "json")
    if settings.task.factory == QUADRATICS:
        raise ConfigError("quadratics are for fedecado simulate; give a worker another --task")
    network, timeouts = settings.network, Timeouts(settings.network.peer_loss)
    if settings.join.address is None:
        name, tls, credential = settings.worker.id or _default_id(settings.worker), network.tls(), None
    elif (credential := _join(settings, timeouts)) is not None:
        name, tls = credential.worker_id, credential.tls
    else:
        return 0  # stopped before it got in
    require_safe_target(settings.worker.coordinator, tls, insecure=network.insecure)
    identity = Identity(
        worker_id=name,
        role=settings.worker.role,
        incarnation=secrets.randbits(63) + 1,
        software=version("fedecado"),
        description=f"{socket.gethostname()}, {platform.platform()}, {settings.task.factory}",
    )
    identify(run=settings.run.name, worker=identity.worker_id)
    address = Address(settings.worker.coordinator, timeouts, tls)
    folder = settings.worker.spool
    spool = None if folder is None else Spool(folder, identity.worker_id)
    guard = make_guard(settings.privacy) if settings.worker.role == "trainer" else None
    around = Surroundings(
        observer=_observers(settings, identity, guard),
        spool=spool,
        credential=credential,
        health_bind=network.health_bind,
        upload=settings.upload.format,
        makes_drifts=settings.worker.drifts == "made",
    )
    code = run_process(address, identity, lambda: make_trainer(loaded, guard), around)
    if guard is not None:
        log.info("privacy: %s", guard.account.describe())
    return code


def _observers(settings: WorkerSettings, identity: "Identity", guard: "Guard | None") -> "Observers":
    """Those who were asked to watch; none costs nothing."""
    from fedecado.client.observer import Observer, Observers

    observers: list[Observer] = []
    if settings.worker.metrics is not None:
        from fedecado.client.metrics import WorkerMetrics

        metrics = WorkerMetrics(identity.worker_id)
        if guard is not None:
            metrics.watch_privacy(guard.account)
        metrics.serve(settings.worker.metrics)
        observers.append(metrics)
    if settings.trace.to is not None:
        from fedecado.client.otel import WorkerTraces
        from fedecado.common.tracing import Tracing  # first: it says which extra is missing

        tracing = Tracing(settings.trace.to, process="worker", worker=identity.worker_id)
        observers.append(WorkerTraces(tracing, identity.worker_id))
    return Observers(observers)


def _join(settings: WorkerSettings, timeouts: Timeouts) -> "Credential | None":
    """The worker's certificate, from its folder or for its token; None if it was told to stop."""
    try:
        from fedecado.client.joining import Door, join
    except ModuleNotFoundError as error:
        raise ConfigError(f"enrolling needs {error.name}; install fedecado[client]") from error
    section, network = settings.join, settings.network
    if network.tls_certificate is not None or network.tls_key is not None:
        raise ConfigError("join.address and network.tls_certificate both say who this worker is; set one")
    assert section.address is not None  # noqa: S101 - the caller looked
    door = Door(section.address, section.token_file, network.tls_ca)
    return join(door, section.folder, settings.worker.id or "", timeouts)


def make_guard(privacy: PrivacySection) -> "Guard | None":
    """What stands between this worker's data and the coordinator, if it is wanted."""
    if privacy.clip is None or privacy.noise_multiplier is None:
        return None
    from fedecado.client.privacy import Account, Guard, Noise

    account = Account(privacy.delta, privacy.budget, privacy.record)
    return Guard(Noise(privacy.clip, privacy.noise_multiplier), account)


def make_trainer(loaded: Loaded[WorkerSettings], guard: "Guard | None" = None) -> "Trainer":
    """The user's task, on its device; call it on the thread that is to train."""
    try:
        with loading():
            from fedecado.client.task import Context, load_task
            from fedecado.client.trainer import HINTS, Habits, Trainer, make_device
            from fedecado.client.window import Plan
    except ModuleNotFoundError as error:
        raise ConfigError(f"a worker needs {error.name}; install fedecado[client]") from error
    settings, training, worker = loaded.settings, loaded.settings.training, loaded.settings.worker
    device = make_device(training.device, worker.local_index, worker.threads)
    context = Context(worker.index, worker.clients, settings.run.seed, worker.role)
    own = training.model_dump(exclude={"device", "sensitivity_every", "probes"})
    habits = Habits(
        plan=Plan(seed=settings.run.seed, **own),
        open_to=[name for name in HINTS if loaded.origin[f"training.{name}"] == DEFAULT],
        probes=training.probes,
        sensitivity_every=training.sensitivity_every,
    )
    return Trainer(
        load_task(settings.task.factory, context, settings.task.arguments), context, device, habits, guard
    )


def _default_id(worker: WorkerSection) -> str:
    """Stable over restarts on the same host; an evaluator may stand beside the trainer of its index."""
    what = "" if worker.role == "trainer" else f"{worker.role}-"
    return f"{socket.gethostname()}-{what}{worker.index}"
