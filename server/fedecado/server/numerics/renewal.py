"""What becomes of a flow at the end of a window, and how much of it its client is given next time.

A flow I_i says what balances its client, as far as a window of noisy gradients can tell. So it looks back on
several windows; and where windows contradict each other, its client is given a part of it only: an estimate
with noise N beside a signal S is best scaled by c = S / (S + N). F, the balance of all clients, is the sum of
whole flows: there the noise of many averages out.

A client that computed with c I_i would have a flow of c I_i + J_i by the window alone. Of the way there its
flow goes theta_i. Who comes to rest no longer contradicts itself, so c becomes 1 and the optimum is the same.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from fedecado.server.numerics.circuit import Floats, Memory

FOLLOW: Final = 0.2
"""How far the doubt follows what a round's clients say."""


class Renewal(NamedTuple):
    """The next flow is `kept` of the last one and `added` of J_i."""

    kept: float | Floats = 1.0
    added: float | Floats = 1.0
    """theta_i"""
    doubt: float = 0.0
    """After this round."""


WHOLE: Final = Renewal()


def trust(doubt: float) -> float:
    """c: the share of its flow that a client is given, for noise that is `doubt` times what it says."""
    return 1.0 / (1.0 + doubt)


def renewal(
    memory: Memory, doubt: float, changes: Sequence[float], flows: Sequence[float], rates: Sequence[float]
) -> Renewal:
    """From the squared lengths of every J_i, of the flows that these clients have and of d_i / T_i."""
    if not (memory.most or doubt):
        return WHOLE
    distrust, ratios, felt = 1.0 - trust(doubt), [], []
    for change, flow, rate in zip(changes, flows, rates, strict=True):
        # What J_i is beyond what the client was not given.
        noise = min(max(change - distrust * distrust * flow, 0.0), flow)
        ratios.append(noise / flow if flow else 0.0)
        if flow:  # noise does no harm where a flow is small beside what moves its client
            felt.append(noise / max(flow, rate))
    if felt:
        doubt += FOLLOW * (memory.most * sum(felt) / len(felt) - doubt)
    # What is renewed by 1 / k in its client's k-th window is the mean of all of them. What changes little, on
    # the way to rest, is not noise; nor does it help to look back from a client's first window.
    added = 1.0 / (1.0 + memory.windows + memory.late * np.array(ratios))
    return Renewal(1.0 - distrust * added, added, doubt)
