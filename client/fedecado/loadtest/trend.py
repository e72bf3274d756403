"""Whether something grows: the slope of a line through it, and how sure that is."""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

BLOCKS: Final = 8
_LEAST: Final = 3 * BLOCKS


@dataclass(frozen=True, slots=True)
class Trend:
    """Growth per minute, and the standard error of that."""

    slope: float
    error: float


def trend(points: Sequence[tuple[float, float]]) -> Trend | None:
    """The line through (seconds, value) by least squares; None of too few points.

    Fitted to medians of blocks: neighbours of one second are no independent samples, and would make the
    error look smaller than it is.
    """
    if len(points) < _LEAST:
        return None
    cuts = [len(points) * n // BLOCKS for n in range(BLOCKS + 1)]
    blocks = [points[first:end] for first, end in itertools.pairwise(cuts)]
    minutes = [statistics.fmean(at for at, _ in block) / 60 for block in blocks]
    values = [statistics.median(value for _, value in block) for block in blocks]
    slope, level = statistics.linear_regression(minutes, values)
    left = sum((y - level - slope * x) ** 2 for x, y in zip(minutes, values, strict=True))
    spread = sum((x - statistics.fmean(minutes)) ** 2 for x in minutes)
    return Trend(slope, math.sqrt(left / (BLOCKS - 2) / spread))
