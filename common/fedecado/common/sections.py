"""The sections of the configuration file, one model per table.

Commands pick the sections they need; `Everything` holds them all, and so decides which names
the file and the environment may use. Each section must be complete by its defaults.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fedecado.common.settings import Section, Settings


class Target(NamedTuple):
    """A metric's bound: training has reached it when `metric sign bound` holds."""

    metric: str
    sign: Literal[">=", "<="]
    bound: float


def parse_target(text: str) -> Target:
    """`accuracy>=0.9` or `loss<=0.1`; anything else is a ValueError."""
    match = re.fullmatch(
        r"\s*([A-Za-z_][\w./-]*)\s*(>=|<=)\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*", text
    )
    if match is None:
        raise ValueError("must be NAME>=NUMBER or NAME<=NUMBER, as in accuracy>=0.9, or none")
    metric, sign, bound = match.groups()
    return Target(metric, ">=" if sign == ">=" else "<=", float(bound))


def _check_target(text: str) -> str:
    parse_target(text)
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
BUILT_IN = {"digits": "fedecado.client.tasks.digits:make"}
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
    algorithm: Literal[
        "fedecado", "fedavg", "fedprox", "fednova", "scaffold", "feddyn", "fedbuff", "fedadam", "fedexp"
    ] = Field(
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
            "allowed": "MODULE:FUNCTION, digits, or quadratics (simulate only)",
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
        1.2, ge=1, allow_inf_nan=True, description="Over-relaxation bound ρ on short windows; inf removes it."
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


class SimulateSection(Section):
    """The simulated clients, and what is written about the run."""

    clients: int = Field(20, ge=1, description="Clients.", json_schema_extra={"flag": "--clients"})
    rates: list[float] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="Draw each client's learning rate between two; none takes the task's usual ones.",
        json_schema_extra={"allowed": "LOW,HIGH", "metavar": "LOW,HIGH", "flag": "--rates"},
    )
    epochs: list[int] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="Draw each client's epochs between two; none takes the task's usual ones.",
        json_schema_extra={"allowed": "LOW,HIGH", "metavar": "LOW,HIGH", "flag": "--epochs"},
    )
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
    evaluate_every: int = Field(
        1, ge=1, description="Rounds between two evaluations.", json_schema_extra={"flag": "--evaluate-every"}
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


class Everything(Settings):
    """Every section of every command."""

    run: RunSection = RunSection()
    task: TaskSection = TaskSection()
    rounds: RoundsSection = RoundsSection()
    solver: SolverSection = SolverSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    training: TrainingSection = TrainingSection()
    simulate: SimulateSection = SimulateSection()
