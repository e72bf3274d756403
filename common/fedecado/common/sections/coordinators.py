"""A coordinator: what it serves, stores and grants."""

from pathlib import Path

from pydantic import Field

from fedecado.common.names import Compact
from fedecado.common.settings import Section


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
    upload_formats: list[Compact] = Field(
        ["float16", "bfloat16", "int8"],
        description="Compact formats that workers may send updates in (upload.format); full always may.",
        json_schema_extra={"allowed": "some of float16,bfloat16,int8", "metavar": "NAME,NAME"},
    )
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
