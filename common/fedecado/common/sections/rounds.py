"""When rounds start and close, and when training is over."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fedecado.common.errors import ConfigError
from fedecado.common.settings import Section
from fedecado.common.target import Target


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
TargetText = Annotated[str, AfterValidator(_check_target)]


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
