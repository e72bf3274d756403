"""How updates become the next model."""

from typing import Literal

from pydantic import Field

from fedecado.common.settings import Section


class SolverSection(Section):
    """The central solve of FedECADO."""

    rho: float = Field(
        1.0,
        ge=1,
        allow_inf_nan=True,
        description="Bound ρ on how far short windows are extrapolated; inf removes it.",
    )
    reach: Literal["length", "curvature", "fixed"] = Field(
        "length",
        description="What it counts: lengths that the round's clients went, or the client's own; but for "
        "fixed a client's curvature tightens it, which exactness needs.",
    )
    horizon: Literal["adaptive", "rms", "longest"] = Field(
        "adaptive",
        description="Common time T of a round: root mean square of its windows, longer while clients go "
        "along and shorter when they turn back; or as it is; or the longest.",
    )
    inertia: float = Field(
        0.3, ge=0, le=1, description="Share λ of absent clients' capacitance at the centre."
    )
    late: Literal["heavier", "alike"] = Field(
        "heavier",
        description="Whether that share, and the memory, grow with how late a round's updates are.",
    )
    memory: float = Field(
        1.0,
        ge=0,
        description="How much noise of flows is kept out of windows, how far late ones look back; 0: none.",
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
    response_bound: float | None = Field(
        None,
        ge=1,
        description="FedECADO: clients that go against their flow, or more than so many medians with it, get "
        "the others' mean; none believes all.",
    )
