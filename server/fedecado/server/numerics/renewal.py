"""What becomes of a flow at the end of a window, and how much of it acts within the next one.

A flow I_i says what balances its client, as far as a window of noisy gradients can tell. Added to every
gradient, its noise leads the client to where other gradients are found. So where windows contradict each
other a part of it is added to the client's state when the window is over, where no gradient sees it: of an
estimate with noise N beside a signal S, the share c = S / (S + N) acts within the window. To the centre it is
all the same: what the client sends contains its whole flow.

Who comes to rest no longer contradicts itself, so c becomes 1 and the optimum is the same.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from fedecado.server.numerics.circuit import Floats, Memory

FOLLOW: Final = 0.2
"""How far the doubt follows what a round's clients say."""
NOISE: Final = 2.0
"""Noise over signal, for a change by the whole length between two windows."""


class Renewal(NamedTuple):
    """The next flow is the last one and `added` of J_i."""

    added: float | Floats = 1.0
    """theta_i"""
    doubt: float = 0.0
    """After this round."""


WHOLE: Final = Renewal()


def trust(doubt: float) -> float:
    """c: the share of its flow that acts within a client's window, for noise `doubt` times the signal."""
    return 1.0 / (1.0 + doubt)


def renewal(
    memory: Memory, doubt: float, changes: Sequence[float], flows: Sequence[float], rates: Sequence[float]
) -> Renewal:
    """From the squared lengths of every J_i, of the flows that these clients have and of d_i / T_i."""
    if not (memory.most or doubt):
        return WHOLE
    noise = [min(change, flow) for change, flow in zip(changes, flows, strict=True)]
    # Noise does no harm where a flow is small beside what moves its client.
    felt = [n / max(flow, rate) for n, flow, rate in zip(noise, flows, rates, strict=True) if flow]
    if felt:
        doubt += FOLLOW * (NOISE * memory.most * sum(felt) / len(felt) - doubt)
    if not memory.late:
        return Renewal(1.0 / (1.0 + memory.windows), doubt)
    # What is renewed by 1 / k in its client's k-th window is the mean of all of them. What changes little, on
    # the way to rest, is not noise; nor does it help to look back from a client's first window.
    ratios = [n / flow if flow else 0.0 for n, flow in zip(noise, flows, strict=True)]
    return Renewal(1.0 / (1.0 + memory.windows + memory.late * np.array(ratios)), doubt)
