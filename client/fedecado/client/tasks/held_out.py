"""Samples set apart to score models on."""

from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from fedecado.common.errors import ConfigError

Scored = Literal["test", "validation"]
VALIDATION_SHARE = 0.1
"""Of the training samples; knobs are tuned on these, so that the test set stays unseen."""


def check_scored(scored: Scored) -> Scored:
    """The name as it is, if it is one."""
    if scored not in get_args(Scored):
        raise ConfigError(f"scored is {scored!r}; it must be one of {', '.join(get_args(Scored))}")
    return scored


def stratified(labels: npt.NDArray[Any], share: float, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Which samples are held out: the same share of every class."""
    held_out = np.zeros(len(labels), np.bool_)
    for label in np.unique(labels):
        own = rng.permutation(np.flatnonzero(labels == label))
        held_out[own[: round(share * len(own))]] = True
    return held_out
