"""A worker, and how it joins."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from fedecado.common.names import Format
from fedecado.common.settings import Section


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
    drifts: Literal["made", "sent"] = Field(
        "made",
        description="Make FedECADO's drifts of what is left of the last task, in memory for two models, or "
        "have them sent.",
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


class UploadSection(Section):
    """How updates travel to the coordinator."""

    format: Format = Field(
        "full",
        description="Numbers of updates on the wire: as they are, or rounded to 2 bytes or 1 for slow lines.",
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
