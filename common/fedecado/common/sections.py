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
TargetText = Annotated[str, AfterValidator(_check_target)]


class RunSection(Section):
    """What is run, and where its results go."""

    name: str = Field(
        "run",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Name of the run and of its folder.",
        json_schema_extra={"allowed": "letters, digits, '.', '_' and '-', a letter or digit first"},
    )
    seed: int = Field(0, ge=0, description="Seed of all pseudo-randomness.")
    algorithm: Literal[
        "fedecado", "fedavg", "fedprox", "fednova", "scaffold", "feddyn", "fedbuff", "fedadam", "fedexp"
    ] = Field("fedecado", description="How updates become the next model.")
    directory: Path = Field(Path("runs"), description="Folder that holds a folder per run.")


class TaskSection(Section):
    """The model, its data and its loss."""

    factory: str = Field(
        "fedecado.client.tasks.digits:make",
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$",
        description="Function that makes the task.",
        json_schema_extra={"allowed": "MODULE:FUNCTION", "metavar": "MODULE:FUNCTION"},
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
        json_schema_extra={"allowed": _ACTIVE, "metavar": "COUNT|SHARE"},
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
    max_rounds: int | None = Field(100, ge=1, description="Rounds after which training stops.")
    target_metric: TargetText | None = Field(
        None,
        description="Stop when an evaluation reaches this.",
        json_schema_extra={"allowed": "NAME>=NUMBER or NAME<=NUMBER", "metavar": "BOUND"},
    )
    rest_tolerance: float | None = Field(
        None, gt=0, description="Stop when a round moves the model by less than this, relative to its norm."
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


class Everything(Settings):
    """Every section of every command."""

    run: RunSection = RunSection()
    task: TaskSection = TaskSection()
    rounds: RoundsSection = RoundsSection()
    solver: SolverSection = SolverSection()
    training: TrainingSection = TrainingSection()
