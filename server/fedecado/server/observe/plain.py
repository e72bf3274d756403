"""Values that JSON has, and what a round's row shows, wherever it comes from."""

import math
from collections.abc import Mapping
from typing import Any

Row = dict[str, Any]

DETAILS = (
    "shortest_step",
    "step_level",
    "truncation_error",
    "steps",
    "rejected_steps",
    "floored_steps",
    "lu_hits",
    "lu_misses",
    "central_change",
    "stretch",
    "reach",
    "trust",
    "flow_median",
    "flow_max",
)
"""What a central solve reports and a round's row shows."""


def finite(value: float | None) -> float | None:
    """The number, if JSON has it."""
    return value if value is not None and math.isfinite(value) else None


def imbalance(rate: float, details: Mapping[str, float]) -> float | None:
    """RMS of the sum of all flows, which is what moves the centre: C dx_c/dt = -sum I."""
    return finite(rate * details["capacitance"]) if "capacitance" in details else None
