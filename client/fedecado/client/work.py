"""What a worker is given to do, and what comes out of it; no torch, no gRPC."""

import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol, Self

from fedecado.common.formats import Packed
from fedecado.common.layout import Layout, Vector
from fedecado.v1.session_pb2 import Assign, Evaluate

Progress = Callable[[int, int, float | None], None]
"""Steps done, steps in all, and the recent training loss if it is known."""

MakeDrift = Callable[[Vector], Vector]
"""The drift, from the central state that a task begins with."""

_MESSAGE, _HEAD, _TAIL = 2000, 2000, 6000
"""Characters of an error that travel; of a traceback, its end says most."""


@dataclass(frozen=True, eq=False)
class _Stoppable:
    _stopped: threading.Event = field(default_factory=threading.Event, init=False, repr=False)

    def stop(self) -> None:
        """Ask the thread that does this to give it up; idempotent."""
        self._stopped.set()

    def stopped(self) -> bool:
        return self._stopped.is_set()


@dataclass(frozen=True, eq=False)
class Training(_Stoppable):
    """An assignment that has arrived completely."""

    header: Assign
    state: Vector
    given: Vector | MakeDrift | None
    """The drift, or how it is made."""

    @cached_property
    def drift(self) -> Vector | None:
        """b; if it has to be made, for whoever asks first: the thread that trains."""
        return self.given(self.state) if callable(self.given) else self.given


@dataclass(frozen=True, eq=False)
class Measuring(_Stoppable):
    """A model version to be measured."""

    header: Evaluate
    state: Vector


Work = Training | Measuring


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A finished window T_i and the weight it was computed with; `curvature` only if measured anew."""

    state: Vector
    """The end state; empty if `packed` holds it."""
    window: float
    weight: float
    steps: int
    samples_seen: int
    loss_before: float | None
    loss_after: float | None
    curvature: float | None
    seconds: float
    packed: Packed | None = None
    """The update in a compact format."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A model version's scores, as means over `samples`."""

    metrics: dict[str, float]
    samples: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """What was raised instead of a result, cut to a size that may travel."""

    type: str
    message: str
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> Self:
        kind = type(error)
        name = (
            kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        )
        text = "".join(traceback.format_exception(error))
        if len(text) > _HEAD + _TAIL:
            text = f"{text[:_HEAD]}\n... {len(text) - _HEAD - _TAIL} characters left out ...\n{text[-_TAIL:]}"
        return cls(name, _encodable(str(error)[:_MESSAGE]), _encodable(text))


Outcome = Trained | Measured | Failed


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """What a worker tells about its model, its data and its machine."""

    layout: Layout
    initial: Vector
    samples: int
    device: str = ""
    curvature: float | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this process is. `incarnation` is random, not 0 and new for every process."""

    worker_id: str
    role: Literal["trainer", "evaluator"]
    incarnation: int
    software: str = ""
    description: str = ""


class Learner(Protocol):
    """The user's model and data, ready to work; called from one thread only."""

    @property
    def profile(self) -> Profile: ...

    def run(self, work: Work, progress: Progress) -> Outcome:
        """Do it; raise as soon as may be once `work.stopped()`."""


def _encodable(text: str) -> str:
    """Without lone surrogates, which file names put into messages and protobuf refuses."""
    return text.encode("utf-8", "replace").decode("utf-8")
