"""What can be seen of a process."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from fedecado.common.sections.network import HOST_PORT
from fedecado.common.settings import Section


class ObserveSection(Section):
    """The dashboard and the metrics of a run."""

    bind: str | None = Field(
        None,
        pattern=HOST_PORT,
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
