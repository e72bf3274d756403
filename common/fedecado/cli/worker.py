"""Train on this machine's data for a coordinator.

The worker connects, enrols with the size of its data and the curvature of its loss, trains what it is
given and reports; it goes on until the run ends. It outlives its coordinator and its network: it
trains on while it is cut off, reconnects for ever and sends what it finished meanwhile. SIGTERM or
Ctrl-C end it in good order, a second Ctrl-C at once. Hints of the coordinator (learning rate, epochs,
batch size) apply where no such setting is given here.

Examples:
  fedecado worker --coordinator train.example.org:50051
  fedecado worker --index 3 --clients 20                   the fourth of twenty shares of the digits
  fedecado worker --role evaluator                         measure models on the test set
  fedecado worker --task my_project.task:make --task-arg path=/data --training-rate 0.01
  FEDECADO_WORKER__INDEX=$JOB_COMPLETION_INDEX fedecado worker --clients 20
"""

import argparse
import platform
import secrets
import socket
from importlib.metadata import version
from typing import TYPE_CHECKING

from fedecado.common.allocator import keep_chunk_buffers
from fedecado.common.errors import ConfigError
from fedecado.common.logs import setup_logging
from fedecado.common.sections import (
    QUADRATICS,
    LogSection,
    NetworkSection,
    RunSection,
    TaskSection,
    TrainingSection,
    WorkerSection,
)
from fedecado.common.settings import DEFAULT, Loaded, Settings
from fedecado.common.timeouts import Timeouts

if TYPE_CHECKING:
    from fedecado.client.trainer import Trainer


class WorkerSettings(Settings):
    """What a worker reads."""

    run: RunSection = RunSection()
    task: TaskSection = TaskSection()
    training: TrainingSection = TrainingSection()
    worker: WorkerSection = WorkerSection()
    network: NetworkSection = NetworkSection()
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
    from fedecado.client.connection import Address
    from fedecado.client.running import run_process
    from fedecado.client.work import Identity

    settings = loaded.settings
    keep_chunk_buffers()
    setup_logging(settings.log.level, json=settings.log.format == "json")
    if settings.task.factory == QUADRATICS:
        raise ConfigError("quadratics are for fedecado simulate; give a worker another --task")
    identity = Identity(
        worker_id=settings.worker.id or _default_id(settings.worker),
        role=settings.worker.role,
        incarnation=secrets.randbits(63) + 1,
        software=version("fedecado"),
        description=f"{socket.gethostname()}, {platform.platform()}, {settings.task.factory}",
    )
    network = settings.network
    tls = network.tls()
    address = Address(settings.worker.coordinator, Timeouts(network.peer_loss), tls)
    return run_process(address, identity, lambda: make_trainer(loaded))


def make_trainer(loaded: Loaded[WorkerSettings]) -> "Trainer":
    """The user's task, on its device; call it on the thread that is to train."""
    try:
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
        load_task(settings.task.factory, context, settings.task.arguments), context, device, habits
    )


def _default_id(worker: WorkerSection) -> str:
    """Stable over restarts on the same host; an evaluator may stand beside the trainer of its index."""
    what = "" if worker.role == "trainer" else f"{worker.role}-"
    return f"{socket.gethostname()}-{what}{worker.index}"
