"""How far the round's common time is stretched beyond the clients' windows.

The centre's last step went along -F: what the flows sum to is what moves it. Clients that start where it
ended answer it: the angle between their mean displacement d and -F tells whether that step was too short or
too long,

    agreement = cos(d, -F) a_new / a,

as in an exact line search, where the slope along the last step vanishes at its end. a_new of the round's a
clients started there. While they go on in the same direction the horizon grows; when they turn back it
shrinks, half as fast again if all of them answer:

    pace <- pace exp(gain agreement),    T = pace (1 + C / a) window

The centre has momentum: of a round's T it goes a / (C + a) at once and the rest in the rounds to come, so at
a pace of 1 a round adds what its clients went in their windows, however heavy the centre is.

Only an angle counts, so nothing depends on the scale of the model, and one round, whoever takes part in it,
lengthens the next by an eighth at most. `window` is how long the clients' windows have been of late, see
`circuit`.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.options import LEAST, MOST

FASTER, SLOWER = 0.12, 0.18
"""Gains. The answer to a longer step comes late, up to n / a rounds: 0.3 for both overshot on digits, where
all agree at first. Being slower to lengthen than to shorten also settles a little short of where clients turn
back, which a noisy sample of them asks for. But noise alone shortens then: in a stream of late updates, where
two or three of ten answer, the pace fell by half in 80 versions and the centre was too slow. So the second
gain is the first one's for those who do not answer.
"""


class Answer(NamedTuple):
    """What clients say of the centre's last step."""

    cosine: float
    share: float = 1.0
    """Of the round's clients, those who know of it."""

    @property
    def agreement(self) -> float:
        return self.share * self.cosine

    @property
    def gain(self) -> float:
        return FASTER if self.cosine > 0 else FASTER + (SLOWER - FASTER) * self.share


def answered(basis: Basis, versions: Sequence[int | None]) -> Answer | None:
    """The angle between the clients' mean displacement and -F; none if either has no direction.

    `versions` names the older versions that clients started from. Those do not know of the last step, so
    they cannot answer it: counting them, the pace of a stream of late updates grew without end. The others
    speak for their share of the round: what one or two of ten say is mostly noise, and noise shortens.
    """
    gram, F = basis.gram, basis.total_slot
    slots = [slot for slot, older in zip(basis.move_slots, versions, strict=True) if older is None]
    if gram is None or F is None or not slots:
        return None
    chosen = [0.0] * len(gram)
    for slot in slots:
        chosen[slot] = 1.0
    moves = gram.dot(chosen).tolist()
    square = sum([moves[slot] for slot in slots])
    size = math.sqrt(max(0.0, square)) * math.sqrt(max(0.0, float(gram[F, F])))
    share = len(slots) / len(versions)
    return Answer(min(1.0, max(-1.0, -moves[F] / size)), share) if 0 < size < math.inf else None


def adapted(pace: float, answer: Answer | None) -> float:
    """The next round's pace."""
    if answer is None:
        return pace
    return min(MOST, max(LEAST, pace * math.exp(answer.gain * answer.agreement)))
