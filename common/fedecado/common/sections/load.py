"""The section of the configuration file about load tests."""

from typing import Annotated, Final

from pydantic import Field
from pydantic.config import JsonDict

from fedecado.common.settings import Section

TRAINING_TIMES: Final = "SECONDS, uniform:LOW,HIGH, exponential:MEAN or lognormal:MEDIAN,SIGMA"


def _flag(name: str, metavar: str = "", **more: str) -> JsonDict:
    return {"flag": f"--{name}", **({"metavar": metavar} if metavar else {}), **more}


class LoadSection(Section):
    """A load test: how many simulated workers, how they behave, and the limits to keep."""

    workers: int = Field(100, ge=1, description="Simulated workers.", json_schema_extra=_flag("workers"))
    minutes: float = Field(
        1.0, gt=0, description="Time to measure, once they are all there.", json_schema_extra=_flag("minutes")
    )
    processes: int = Field(
        1, ge=1, description="Processes that share them.", json_schema_extra=_flag("processes")
    )
    machine: int = Field(
        0,
        ge=0,
        description="Which of several machines in the test this is, from 0; a Job's completion index fits.",
        json_schema_extra=_flag("machine"),
    )
    prefix: str = Field(
        "load",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,99}$",
        description="Workers are called PREFIX-0, PREFIX-1 and so on.",
        json_schema_extra=_flag("worker-prefix", allowed="letters, digits and . _ : @ -"),
    )
    model_kb: float = Field(
        100.0, gt=0, le=4e6, description="Size of the model in kB.", json_schema_extra=_flag("model-kb")
    )
    training_time: str = Field(
        "lognormal:5,0.5",
        description="Seconds that a worker takes for a task.",
        json_schema_extra=_flag("training-time", "TIME", allowed=TRAINING_TIMES),
    )
    stragglers: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of the workers that are slow.",
        json_schema_extra=_flag("stragglers"),
    )
    straggler_factor: float = Field(
        10.0, ge=1, description="How much slower those are.", json_schema_extra=_flag("straggler-factor")
    )
    dropouts: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Chance that a worker dies during a task and comes back without it.",
        json_schema_extra=_flag("dropouts"),
    )
    away: float = Field(
        10.0, ge=0, description="Mean seconds until it is back.", json_schema_extra=_flag("away", "SECONDS")
    )
    storm_every: float | None = Field(
        None,
        gt=0,
        description="Cut the workers' connections all at once every so many seconds.",
        json_schema_extra=_flag("storm-every", "SECONDS"),
    )
    storm_share: float = Field(
        1.0, gt=0, le=1, description="Share of the workers it hits.", json_schema_extra=_flag("storm-share")
    )
    bad_actors: dict[str, Annotated[int, Field(ge=0)]] = Field(
        {},
        description="Workers of a kind that misbehave: nan, damaged, garbage, stalling, silent, wrong-model.",
        json_schema_extra=_flag("bad-actors", "KIND=N"),
    )
    connect_rate: float = Field(
        200.0,
        gt=0,
        description="New connections per second while the workers come.",
        json_schema_extra=_flag("connect-rate"),
    )
    with_tls: bool = Field(
        False,
        description="Make certificates for a coordinator that is started here and for all workers.",
        json_schema_extra=_flag("with-tls"),
    )
    pid: int | None = Field(
        None,
        ge=1,
        description="Process of the coordinator, if it runs on this machine, to measure its CPU and memory.",
        json_schema_extra=_flag("coordinator-pid"),
    )
    metrics: str | None = Field(
        None,
        pattern=r"^https?://\S+$",
        description="Where the coordinator serves its metrics, to read its CPU and memory from there.",
        json_schema_extra=_flag("metrics", "URL", allowed="an http address such as http://HOST:8080/metrics"),
    )
    keep: bool = Field(
        False,
        description="Keep the store of a coordinator that was started here.",
        json_schema_extra=_flag("keep"),
    )
    max_errors: int | None = Field(
        0, ge=0, description="Errors that honest workers may see.", json_schema_extra=_flag("max-errors")
    )
    min_updates_rate: float | None = Field(
        None,
        ge=0,
        description="Accepted updates per second that must be reached.",
        json_schema_extra=_flag("min-updates-rate"),
    )
    min_rounds_rate: float | None = Field(
        None,
        ge=0,
        description="Rounds per second that must be reached.",
        json_schema_extra=_flag("min-rounds-rate"),
    )
    max_push_p99: float | None = Field(
        None,
        gt=0,
        description="Seconds within which 99% of the updates must be acknowledged.",
        json_schema_extra=_flag("max-push-p99", "SECONDS"),
    )
    max_assign_p99: float | None = Field(
        None,
        gt=0,
        description="Seconds within which 99% of the tasks must have arrived.",
        json_schema_extra=_flag("max-assign-p99", "SECONDS"),
    )
    max_rss_growth: float | None = Field(
        None,
        description="MB by which the coordinator's memory may grow from the second to the last quarter.",
        json_schema_extra=_flag("max-rss-growth", "MB"),
    )
    max_rss_slope: float | None = Field(
        None,
        description="MB per minute by which it may grow after the first quarter, by a fitted line.",
        json_schema_extra=_flag("max-rss-slope", "MB"),
    )
