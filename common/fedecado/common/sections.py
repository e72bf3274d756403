"""The sections of the configuration file, one model per table.

Commands pick the sections they need; `Everything` holds them all, and so decides which names
the file and the environment may use. Each section must be complete by its defaults.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fedecado.common.errors import ConfigError
from fedecado.common.names import AlgorithmName
from fedecado.common.settings import Section, Settings
from fedecado.common.target import Target

if TYPE_CHECKING:
    from fedecado.common.tls import TlsFiles


def _check_target(text: str) -> str:
    try:
        Target.parse(text)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return text


def _parse_active(value: Any) -> int | float:
    """A whole number counts clients, a fraction is a share of them: 10, 0.25, `25%`, `all`."""
    number: Any = value
    if isinstance(value, str):
        text = value.strip()
        try:
            if text.endswith("%"):
                number = float(text[:-1]) / 100
            elif text == "all":
                number = 1.0
            else:
                number = float(text) if re.search(r"[.eE]", text) else int(text)
        except ValueError:
            number = None
    if type(number) is int and number >= 1:
        return number
    if type(number) is float and 0 < number <= 1:
        return number
    raise ValueError(f"must be {_ACTIVE}")


_ACTIVE = "a count of clients such as 10, or a share such as 0.25, 25% or all"
Active = Annotated[int | float, BeforeValidator(_parse_active)]
BUILT_IN = {
    "digits": "fedecado.client.tasks.digits:make",
    "mnist": "fedecado.client.tasks.images:mnist",
    "fashion-mnist": "fedecado.client.tasks.images:fashion_mnist",
    "cifar10": "fedecado.client.tasks.images:cifar10",
    "cifar100": "fedecado.client.tasks.images:cifar100",
    "text": "fedecado.client.tasks.text:make",
}
QUADRATICS = "quadratics"
"""Clients with a known optimum; the simulator's own, for they are no torch model."""


def _resolve_factory(value: str) -> str:
    if value == QUADRATICS or value in BUILT_IN:
        return BUILT_IN.get(value, value)
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", value):
        return value
    raise ValueError(f"must be MODULE:FUNCTION or one of {', '.join([*BUILT_IN, QUADRATICS])}")


Factory = Annotated[str, AfterValidator(_resolve_factory)]
TargetText = Annotated[str, AfterValidator(_check_target)]


class RunSection(Section):
    """What is run, and where its results go."""

    name: str = Field(
        "run",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Name of the run and of its folder.",
        json_schema_extra={
            "allowed": "letters, digits, '.', '_' and '-', a letter or digit first",
            "flag": "--name",
        },
    )
    seed: int = Field(
        0, ge=0, description="Seed of all pseudo-randomness.", json_schema_extra={"flag": "--seed"}
    )
    algorithm: AlgorithmName = Field(
        "fedecado",
        description="How updates become the next model.",
        json_schema_extra={"flag": "--algorithm"},
    )
    directory: Path = Field(
        Path("runs"),
        description="Folder that holds a folder per run.",
        json_schema_extra={"flag": "--directory"},
    )


class TaskSection(Section):
    """The model, its data and its loss."""

    factory: Factory = Field(
        "fedecado.client.tasks.digits:make",
        description="Function that makes the task, or the name of a built-in one.",
        json_schema_extra={
            "allowed": f"MODULE:FUNCTION, {', '.join(BUILT_IN)}, or quadratics (simulate only)",
            "metavar": "TASK",
            "flag": "--task",
        },
    )
    arguments: dict[str, Any] = Field(
        {},
        description="Argument of that function; the value is read as TOML, or else as text.",
        json_schema_extra={"flag": "--task-arg"},
    )


class RoundsSection(Section):
    """When a round starts, closes, and when training is over."""

    mode: Literal["rounds", "stream"] = Field(
        "rounds", description="Hand out work when a round starts, or to each worker as soon as it reports."
    )
    active: Active = Field(
        1.0,
        description="Clients asked per round.",
        json_schema_extra={"allowed": _ACTIVE, "metavar": "COUNT|SHARE", "flag": "--active"},
    )
    min_clients: int = Field(1, ge=1, description="Enrolled clients to wait for before the first round.")
    min_updates: int = Field(1, ge=1, description="Updates a round needs before its deadline may close it.")
    target_updates: int | None = Field(
        None, ge=1, description="Updates that close a round at once; none waits for all that were asked."
    )
    deadline: float | None = Field(
        None,
        gt=0,
        description="Seconds after which a round closes.",
        json_schema_extra={"metavar": "SECONDS"},
    )
    max_staleness: int = Field(
        20, ge=0, description="Oldest update that still counts, in versions behind the current model."
    )
    lease: float | None = Field(
        None,
        gt=0,
        description="Seconds after which a worker's task is no longer waited for.",
        json_schema_extra={"metavar": "SECONDS"},
    )
    retry: float = Field(
        5.0,
        gt=0,
        description="Seconds a worker rests after a failed task.",
        json_schema_extra={"metavar": "SECONDS"},
    )
    max_rounds: int | None = Field(
        100, ge=1, description="Rounds after which training stops.", json_schema_extra={"flag": "--rounds"}
    )
    target_metric: TargetText | None = Field(
        None,
        description="Stop when an evaluation reaches this.",
        json_schema_extra={"allowed": "NAME>=NUMBER or NAME<=NUMBER", "metavar": "BOUND"},
    )
    evaluate_every: int = Field(
        1,
        ge=1,
        description="Versions between two evaluations.",
        json_schema_extra={"flag": "--evaluate-every"},
    )
    rest_tolerance: float | None = Field(
        None, gt=0, description="Stop when the centre moves slower than this: root mean square of dx/dt."
    )

    @model_validator(mode="after")
    def _target_is_reachable(self) -> Self:
        if self.target_updates is not None and self.target_updates < self.min_updates:
            raise ValueError(
                f"target_updates = {self.target_updates} is below min_updates = {self.min_updates}; "
                "raise the one or lower the other"
            )
        return self


class SolverSection(Section):
    """The central solve of FedECADO."""

    rho: float = Field(
        4.0, ge=1, allow_inf_nan=True, description="Over-relaxation bound ρ on short windows; inf removes it."
    )
    reach: Literal["curvature", "fixed"] = Field(
        "curvature", description="Whether a client's curvature tightens that bound, which exactness needs."
    )
    inertia: float = Field(
        0.1, ge=0, le=1, description="Share λ of absent clients' capacitance at the centre."
    )
    kappa: float = Field(1.0, gt=0, description="Damping factor κ; 1 is critical damping.")
    inductance: float | None = Field(
        None, gt=0, description="Fixed inductance L; none derives it by damping."
    )
    tolerance: float = Field(0.1, gt=0, description="Local truncation error δ that a step may make.")
    norm: Literal["rms", "max"] = Field("rms", description="How that error is measured over parameters.")
    window: Literal["own", "common"] = Field(
        "own", description="Time behind a client's sensitivity: its own window or the round's."
    )
    absent: Literal["held", "ignored"] = Field(
        "held",
        description="Whether flows of absent clients still act on the centre; ignoring them is biased.",
    )


class AlgorithmSection(Section):
    """Knobs of the other algorithms; none takes the algorithm's own default."""

    mu: float | None = Field(None, ge=0, description="Pull of FedProx, FedNova and FedDyn.")
    server_rate: float | None = Field(None, gt=0, description="Server rate of FedBuff and FedAdam.")


class TrainingSection(Section):
    """Local training; a worker's own settings win over what the coordinator suggests."""

    rate: float = Field(0.05, gt=0, description="Learning rate η.")
    schedule: Literal["constant", "cosine", "step"] = Field("constant", description="How the rate changes.")
    tolerance: float | None = Field(
        None,
        gt=0,
        description="Adaptive steps: the local error each may make, instead of rate and schedule.",
        json_schema_extra={"flag": "--tolerance"},
    )
    epochs: int = Field(1, ge=1, description="Passes over the local data per update.")
    batch_size: int = Field(32, ge=1, description="Samples per step.")
    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum of the local steps.")
    weight_decay: float = Field(0.0, ge=0, description="Pull of the parameters towards zero.")
    clip: float | None = Field(None, gt=0, description="Largest gradient norm.")
    precision: Literal["full", "bf16"] = Field("full", description="Number format of the forward pass.")
    device: str = Field("auto", min_length=1, description="Device to train on: auto, cpu, cuda, cuda:1, mps.")
    sensitivity_every: int = Field(
        0,
        ge=0,
        description="Updates between two estimates of the curvature; 0 estimates it once, at enrolment.",
    )
    probes: int = Field(4, ge=1, description="Random probes per estimate of the curvature.")


class CoordinatorSection(Section):
    """The coordinator process."""

    bind: str = Field(
        "127.0.0.1:50051",
        description="Address to listen on; port 0 takes a free one.",
        json_schema_extra={"metavar": "HOST:PORT", "flag": "--bind"},
    )
    initial: Path | None = Field(
        None,
        description="Model to start from (safetensors); none asks the first worker for its own.",
        json_schema_extra={"flag": "--initial"},
    )
    durable: bool = Field(
        True,
        description="Keep the run's state in its folder, so that it goes on after a crash.",
    )
    fresh: bool = Field(
        False,
        description="Set an earlier run of this name aside, instead of going on with it.",
    )
    sensitivity_every: int = Field(
        0, ge=0, description="Ask a worker to measure its curvature again every so many updates; 0 never."
    )
    hint_rate: float | None = Field(
        None, gt=0, description="Learning rate to suggest to workers that have no setting of their own."
    )
    hint_epochs: int | None = Field(None, ge=1, description="Epochs to suggest, likewise.")
    hint_batch_size: int | None = Field(None, ge=1, description="Batch size to suggest, likewise.")
    linger: float | None = Field(
        0.0,
        ge=0,
        description="Seconds to go on serving the finished model; none is for ever.",
        json_schema_extra={"metavar": "SECONDS", "flag": "--linger"},
    )


class FleetSection(Section):
    """The clients of a simulation, or of a federation on this machine, and how they differ."""

    clients: int = Field(10, ge=1, description="Clients.", json_schema_extra={"flag": "--clients"})
    rates: list[float] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="Draw each client's learning rate between two; none takes the same for all.",
        json_schema_extra={"allowed": "LOW,HIGH", "metavar": "LOW,HIGH", "flag": "--rates"},
    )
    epochs: list[int] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="Draw each client's epochs between two; none takes the same for all.",
        json_schema_extra={"allowed": "LOW,HIGH", "metavar": "LOW,HIGH", "flag": "--epochs"},
    )


class SimulateSection(Section):
    """The virtual clock, and what is written about the run."""

    speed_spread: float = Field(
        0.0,
        ge=0,
        description="Spread of the clients' speeds (of the logarithm).",
        json_schema_extra={"flag": "--speed-spread"},
    )
    dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Chance that a client goes away during a task.",
        json_schema_extra={"flag": "--dropout"},
    )
    processes: int = Field(
        1,
        ge=1,
        description="Processes that train the clients; the results are the same with any number.",
        json_schema_extra={"flag": "--processes"},
    )
    loss_samples: int = Field(
        256,
        ge=0,
        description="Samples whose loss is measured before and after each window; 0 saves the time.",
    )
    results: Path | None = Field(
        None,
        description="Results as .json or .parquet; none is results.json in the run's folder.",
        json_schema_extra={"flag": "--results"},
    )
    plot: Path | None = Field(
        None,
        description="Plot as .png, .svg or .pdf; none is plot.png in the run's folder.",
        json_schema_extra={"flag": "--plot"},
    )
    record: Path | None = Field(
        None, description="Write the arrivals to this trace.", json_schema_extra={"flag": "--record"}
    )
    replay: Path | None = Field(
        None, description="Take the arrivals from this trace.", json_schema_extra={"flag": "--replay"}
    )


class UpSection(Section):
    """A whole federation on this machine."""

    evaluator: bool = Field(True, description="Start a worker that measures the versions.")
    compare: list[AlgorithmName] = Field(
        [],
        description="Run these algorithms too, one after the other, on the same data and draws.",
        json_schema_extra={"flag": "--compare", "metavar": "NAME,NAME"},
    )


class WorkerSection(Section):
    """One worker: who it is, whose data it holds, and where its coordinator is."""

    id: str | None = Field(
        None,
        min_length=1,
        description="Lasting name of the worker, its own in the run; none derives it from host and index.",
    )
    coordinator: str = Field(
        "localhost:50051",
        pattern=r"^((dns|ipv4|ipv6|unix|unix-abstract):\S+|[^\s/]+:[0-9]{1,5})$",
        description="Address of the coordinator.",
        json_schema_extra={
            "allowed": "HOST:PORT or a gRPC target such as unix:/run/fedecado.sock",
            "metavar": "HOST:PORT",
            "flag": "--coordinator",
        },
    )
    role: Literal["trainer", "evaluator"] = Field(
        "trainer",
        description="Train on own data, or measure models on the test set.",
        json_schema_extra={"flag": "--role"},
    )
    index: int = Field(
        0,
        ge=0,
        description="Which client's data to hold, from 0; a Job's completion index fits.",
        json_schema_extra={"flag": "--index"},
    )
    clients: int = Field(1, ge=1, description="Clients that the task's data is dealt out to.")
    local_index: int | None = Field(
        None, ge=0, description="Number of this worker on its host; spreads workers over the host's GPUs."
    )
    threads: int | None = Field(
        None, ge=1, description="CPU threads of torch; none leaves the choice to torch (one per core)."
    )

    @model_validator(mode="after")
    def _index_is_a_client(self) -> Self:
        if self.index >= self.clients:
            raise ValueError(
                f"index = {self.index} is none of clients = {self.clients}; indices count from 0, "
                f"set clients to {self.index + 1} or more"
            )
        return self


class NetworkSection(Section):
    """The line between workers and coordinator."""

    peer_loss: float = Field(
        15.0,
        ge=0.1,
        le=3600,
        description="Seconds within which a dead peer is noticed; all other time limits follow from it.",
        json_schema_extra={"metavar": "SECONDS"},
    )
    tls_ca: Path | None = Field(None, description="Certificate of the authority that both sides trust.")
    tls_certificate: Path | None = Field(None, description="This process's own certificate.")
    tls_key: Path | None = Field(None, description="The key of that certificate.")
    insecure: bool = Field(
        False, description="Let a coordinator listen beyond this machine without TLS, on a trusted network."
    )

    def tls(self) -> "TlsFiles | None":
        """The files of mutual TLS, if they are given."""
        from fedecado.common.tls import TlsFiles  # it loads gRPC, which few commands need

        return TlsFiles.choose(self.tls_ca, self.tls_certificate, self.tls_key)


class ObserveSection(Section):
    """The dashboard and the metrics of a run, for reading only."""

    bind: str | None = Field(
        None,
        pattern=r"^(\[[0-9A-Fa-f:]+\]|[^\s:/\[\]]+):[0-9]{1,5}$",
        description="Address of the dashboard and of /metrics; port 0 takes a free one, none serves neither.",
        json_schema_extra={"allowed": "HOST:PORT", "metavar": "HOST:PORT", "flag": "--observe-bind"},
    )


class LogSection(Section):
    """What is logged, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least important line.")
    format: Literal["text", "json"] = Field("text", description="Lines for people, or a JSON object each.")


class Everything(Settings):
    """Every section of every command."""

    run: RunSection = RunSection()
    task: TaskSection = TaskSection()
    rounds: RoundsSection = RoundsSection()
    solver: SolverSection = SolverSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    training: TrainingSection = TrainingSection()
    fleet: FleetSection = FleetSection()
    simulate: SimulateSection = SimulateSection()
    up: UpSection = UpSection()
    coordinator: CoordinatorSection = CoordinatorSection()
    worker: WorkerSection = WorkerSection()
    network: NetworkSection = NetworkSection()
    observe: ObserveSection = ObserveSection()
    log: LogSection = LogSection()
