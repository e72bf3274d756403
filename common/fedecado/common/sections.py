"""The sections of the configuration file, one model per table.

Commands pick the sections they need; `Everything` holds them all, and so decides which names
the file and the environment may use. Each section must be complete by its defaults.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fedecado.common.errors import ConfigError
from fedecado.common.load_section import LoadSection
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
_HOST_PORT = r"^(\[[0-9A-Fa-f:]+\]|[^\s:/\[\]]+):[0-9]{1,5}$"
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


class RobustSection(Section):
    """What a single client's update may do to a round."""

    norm_bound: float | None = Field(
        None, ge=1, description="Longest update taken as it is, in medians of the round; none sets no bound."
    )
    beyond: Literal["clip", "drop", "accept"] = Field(
        "clip",
        description="Longer ones are shortened; or refused on arrival, too; or only counted.",
    )
    trim: float = Field(
        0.0,
        ge=0,
        lt=0.5,
        description="Share of a round's clients drawn in to the others at either end of every coordinate.",
    )


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


class PrivacySection(Section):
    """Noise on what a worker sends; all or nothing: clip and noise_multiplier switch it on together."""

    clip: float | None = Field(
        None, gt=0, description="Longest displacement that is sent; longer ones are shortened."
    )
    noise_multiplier: float | None = Field(
        None, gt=0, description="Standard deviation of the noise on every parameter, in units of clip."
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="The delta that epsilon is told for.")
    budget: float | None = Field(
        None, gt=0, description="Largest epsilon; tasks that would exceed it fail instead."
    )
    record: Path | None = Field(
        None, description="File that keeps the account over restarts; none begins anew each time."
    )

    @model_validator(mode="after")
    def _both_or_neither(self) -> Self:
        if (self.clip is None) != (self.noise_multiplier is None):
            missing = "clip" if self.clip is None else "noise_multiplier"
            raise ValueError(f"{missing} is missing; privacy needs clip and noise_multiplier, or neither")
        return self


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
    snapshot: Path | None = Field(
        None,
        description="Begin where a snapshot stood (fedecado store export): its model, flows and clients.",
        json_schema_extra={"metavar": "DIR", "flag": "--from-snapshot"},
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


class StoreSection(Section):
    """What a coordinator keeps in the run's folder, and how much of it."""

    keep_last: int = Field(2, ge=1, description="Models of the newest checkpoints to keep.")
    keep_every: int = Field(
        0, ge=0, description="Keep one older model of every so many versions, too; 0 keeps none."
    )
    keep_most: int = Field(20, ge=0, description="So many of those at most; the oldest go first.")
    record: bool = Field(
        False, description="Keep every update, so that fedecado replay can compute the whole run again."
    )
    record_gigabytes: float = Field(
        10.0, gt=0, description="Size of those updates at which the record begins anew."
    )
    checkpoint_seconds: float = Field(
        30.0,
        ge=0,
        description="Least time between checkpoints; a restart replays what came after the last one.",
        json_schema_extra={"metavar": "SECONDS"},
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
    spool: Path | None = Field(
        None,
        description="Folder that keeps a finished update until it is delivered, also over a restart.",
        json_schema_extra={"metavar": "DIR"},
    )
    local_index: int | None = Field(
        None, ge=0, description="Number of this worker on its host; spreads workers over the host's GPUs."
    )
    threads: int | None = Field(
        None, ge=1, description="CPU threads of torch; none leaves the choice to torch (one per core)."
    )

    metrics: str | None = Field(
        None,
        pattern=r"^((\[[0-9A-Fa-f:]+\]|[^\s:/\[\]]+):)?[0-9]{1,5}$",
        description="Address of this worker's metrics, or a port on this machine alone; none serves none.",
        json_schema_extra={"allowed": "PORT or HOST:PORT", "metavar": "[HOST:]PORT"},
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
    tls_crl: Path | None = Field(
        None, description="List of revoked certificates; none is crl.pem beside tls_ca, when there is one."
    )
    admin_token_file: Path | None = Field(
        None, description="File with the token that operators without an admin certificate show."
    )
    health_bind: str | None = Field(
        None,
        pattern=_HOST_PORT,
        description="Address of a health check in plain text for probes; port 0 takes a free one.",
        json_schema_extra={"allowed": "HOST:PORT", "metavar": "HOST:PORT"},
    )
    insecure: bool = Field(
        False, description="Let a coordinator listen beyond this machine without TLS, on a trusted network."
    )

    def tls(self) -> "TlsFiles | None":
        """The files of mutual TLS, if they are given."""
        from fedecado.common.tls import TlsFiles  # it loads gRPC, which few commands need

        return TlsFiles.choose(self.tls_ca, self.tls_certificate, self.tls_key)


class LimitsSection(Section):
    """What a coordinator grants to peers, whoever they are."""

    sessions: int = Field(10_000, ge=1, description="Connections and streams at once.")
    workers: int = Field(100_000, ge=1, description="Workers that may ever enrol in a run.")
    samples: int = Field(10**9, ge=1, lt=1 << 53, description="Largest sample count that is believed.")
    memory: int | None = Field(
        None,
        ge=1 << 20,
        description="Bytes of vectors being received at once; none takes half of this machine's memory.",
        json_schema_extra={"metavar": "BYTES"},
    )
    rate: float | None = Field(
        None,
        ge=1 << 16,
        description="Bytes per second taken from one worker.",
        json_schema_extra={"metavar": "BYTES"},
    )
    total_rate: float | None = Field(
        None,
        ge=1 << 16,
        description="Bytes per second taken from all workers.",
        json_schema_extra={"metavar": "BYTES"},
    )
    slowest: float = Field(
        4096.0,
        gt=0,
        description="Bytes per second below which a transfer is cut off.",
        json_schema_extra={"metavar": "BYTES"},
    )
    messages: float = Field(
        200.0, gt=0, description="Messages per second from one worker, large chunks not counted."
    )


class EnrolmentSection(Section):
    """Certificates for workers that show a token, given by the coordinator."""

    bind: str | None = Field(
        None,
        pattern=r"^(\[[0-9A-Fa-f:]+\]|[^\s:/\[\]]+):[0-9]{1,5}$",
        description="Address where workers without a certificate enrol; none takes no such worker in.",
        json_schema_extra={"allowed": "HOST:PORT", "metavar": "HOST:PORT"},
    )
    folder: Path = Field(
        Path("certs"), description="The authority: ca.pem, ca.key and what it has given out."
    )
    hours: float = Field(
        168.0,
        gt=0,
        le=24 * 366,
        description="Life of the certificates given; workers renew them by themselves.",
    )


class JoinSection(Section):
    """How a worker without a certificate gets one."""

    address: str | None = Field(
        None,
        pattern=r"^((dns|ipv4|ipv6|unix|unix-abstract):\S+|[^\s/]+:[0-9]{1,5})$",
        description="Where the coordinator enrols workers (its enrolment.bind); none enrols nowhere.",
        json_schema_extra={"allowed": "HOST:PORT", "metavar": "HOST:PORT"},
    )
    token_file: Path | None = Field(
        None, description="File of `fedecado tokens create`; needed until there is a certificate."
    )
    folder: Path = Field(
        Path("identity"), description="Where the worker keeps its key and certificate; its own, not shared."
    )


class ObserveSection(Section):
    """The dashboard and the metrics of a run."""

    bind: str | None = Field(
        None,
        pattern=_HOST_PORT,
        description="Address of the dashboard and of /metrics; port 0 takes a free one, none serves neither.",
        json_schema_extra={"allowed": "HOST:PORT", "metavar": "HOST:PORT", "flag": "--observe-bind"},
    )
    public: bool = Field(
        False,
        description="Show the dashboard to whoever reaches it, beyond this machine, too, without a token.",
    )
    tensorboard: Path | None = Field(
        None, description="Folder to write TensorBoard's event files to, in a folder per run."
    )
    mlflow: str | None = Field(
        None,
        min_length=1,
        description="MLflow tracking server or folder to write metrics to.",
        json_schema_extra={"metavar": "URI"},
    )


class TraceSection(Section):
    """OpenTelemetry traces of rounds and tasks, through all processes."""

    to: str | None = Field(
        None,
        pattern=r"^(otlp|https?://\S+|file:.+)$",
        description="Where spans go; otlp asks OTEL_EXPORTER_OTLP_ENDPOINT, none keeps no traces.",
        json_schema_extra={"allowed": "otlp, the URL of a collector, or file:PATH", "metavar": "WHERE"},
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
    robust: RobustSection = RobustSection()
    training: TrainingSection = TrainingSection()
    privacy: PrivacySection = PrivacySection()
    fleet: FleetSection = FleetSection()
    simulate: SimulateSection = SimulateSection()
    up: UpSection = UpSection()
    loadtest: LoadSection = LoadSection()
    coordinator: CoordinatorSection = CoordinatorSection()
    store: StoreSection = StoreSection()
    worker: WorkerSection = WorkerSection()
    network: NetworkSection = NetworkSection()
    enrolment: EnrolmentSection = EnrolmentSection()
    join: JoinSection = JoinSection()
    limits: LimitsSection = LimitsSection()
    observe: ObserveSection = ObserveSection()
    trace: TraceSection = TraceSection()
    log: LogSection = LogSection()
