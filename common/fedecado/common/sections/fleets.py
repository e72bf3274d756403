"""Many clients at once: simulated, or as processes on one machine."""

from pathlib import Path

from pydantic import Field

from fedecado.common.names import AlgorithmName
from fedecado.common.settings import Section


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
