"""What a session asks of the shell around it."""

from dataclasses import dataclass

from fedecado.client.work import Work
from fedecado.common.formats import Bytes
from fedecado.common.layout import Vector
from fedecado.v1.session_pb2 import WorkerMessage


@dataclass(frozen=True, slots=True, eq=False)
class Send:
    """A message and, for a header, its vector, as numbers or packed. Of task `task`; 0 for none."""

    message: WorkerMessage
    vector: Vector | Bytes | None = None
    task: int = 0
    encloses: bool = False
    """Whether the vector goes within its header, an Update, and not after it."""


@dataclass(frozen=True, slots=True)
class HangUp:
    """Send what is queued, then nothing more; the coordinator ends the stream."""


@dataclass(frozen=True, slots=True)
class Start:
    """Do this when what was started before is over."""

    work: Work


@dataclass(frozen=True, slots=True)
class Stop:
    """Give this up; its outcome is of no interest any more."""

    work: Work


@dataclass(frozen=True, slots=True)
class Forget:
    """The outcome of this task need not be kept any more."""

    task: int
    counted: bool = False
    """Whether it is with the coordinator."""


Effect = Send | HangUp | Start | Stop | Forget


@dataclass(frozen=True, slots=True)
class Leave:
    """The worker is done and exits."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Connect again, after `after` seconds at the soonest."""

    reason: str
    after: float = 0.0


Ending = Leave | Retry
