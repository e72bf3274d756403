"""What is run: the run itself and its task."""

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from fedecado.common.names import AlgorithmName
from fedecado.common.settings import Section

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
