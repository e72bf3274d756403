"""A client's own training, and what it keeps to itself."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from fedecado.common.settings import Section


class TrainingSection(Section):
    """Local training; a worker's own settings win over what the coordinator suggests."""

    rate: float = Field(0.05, gt=0, description="Learning rate η.")
    schedule: Literal["constant", "cosine", "step"] = Field("constant", description="How the rate changes.")
    tolerance: float | None = Field(
        None,
        gt=0,
        description="Adaptive steps: the local error each may make, instead of rate and schedule.",
        json_schema_extra={"flag": "--tolerance"},
    )
    epochs: int = Field(1, ge=1, description="Passes over the local data per update.")
    batch_size: int = Field(32, ge=1, description="Samples per step.")
    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum of the local steps.")
    weight_decay: float = Field(0.0, ge=0, description="Pull of the parameters towards zero.")
    clip: float | None = Field(None, gt=0, description="Largest gradient norm.")
    steady: bool = Field(
        True, description="Gradients less the drift never exceed the window's first; only with a drift."
    )
    precision: Literal["full", "bf16"] = Field("full", description="Number format of the forward pass.")
    device: str = Field("auto", min_length=1, description="Device to train on: auto, cpu, cuda, cuda:1, mps.")
    sensitivity_every: int = Field(
        0,
        ge=0,
        description="Updates between two estimates of the curvature; 0 estimates it once, at enrolment.",
    )
    probes: int = Field(4, ge=1, description="Random probes per estimate of the curvature.")
    loss_samples: int = Field(
        256,
        ge=0,
        description="Samples whose loss is measured before and after each window; 0 saves the time.",
    )


class PrivacySection(Section):
    """Noise on what a worker sends; all or nothing: clip and noise_multiplier switch it on together."""

    clip: float | None = Field(
        None, gt=0, description="Longest displacement that is sent; longer ones are shortened."
    )
    noise_multiplier: float | None = Field(
        None, gt=0, description="Standard deviation of the noise on every parameter, in units of clip."
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="The delta that epsilon is told for.")
    budget: float | None = Field(
        None, gt=0, description="Largest epsilon; tasks that would exceed it fail instead."
    )
    record: Path | None = Field(
        None, description="File that keeps the account over restarts; none begins anew each time."
    )

    @model_validator(mode="after")
    def _both_or_neither(self) -> Self:
        if (self.clip is None) != (self.noise_multiplier is None):
            missing = "clip" if self.clip is None else "noise_multiplier"
            raise ValueError(f"{missing} is missing; privacy needs clip and noise_multiplier, or neither")
        return self
