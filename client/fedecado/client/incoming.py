"""The vectors within or behind an Assign or an Evaluate, gathered into a piece of work."""

from typing import final

import numpy as np

from fedecado.client.footing import Footing
from fedecado.client.work import MakeDrift, Measuring, Training, Work
from fedecado.common import enclosed, spares
from fedecado.common.errors import ProtocolError
from fedecado.common.layout import Layout, Vector
from fedecado.common.wire import BulkChunk, Receiver
from fedecado.v1.session_pb2 import Assign, Evaluate
from fedecado.v1.transfer_pb2 import Trailer


def enclosed_work(header: Assign | Evaluate, layout: Layout, footing: Footing | None = None) -> Work | None:
    """The work whose vectors are in its header; None if they are still to come.

    `footing` is what a drift may follow from.
    """
    drift_bytes = _check_lengths(header, layout)
    drifts = isinstance(header, Assign) and header.HasField("drift")
    if not header.HasField("state") and not drifts:
        return None
    if not header.HasField("state") or drifts != bool(drift_bytes):
        raise ProtocolError(f"task {header.task_id} has some of its vectors in its header, but not all")
    state, _ = enclosed.opened(header.state, layout.nbytes, layout.dtype)
    header.ClearField("state")  # it is kept as long as the work
    if isinstance(header, Evaluate):
        return Measuring(header, state)
    if not drifts:
        return Training(header, state, _followed(header, footing))
    drift, _ = enclosed.opened(header.drift, drift_bytes, layout.dtype)
    header.ClearField("drift")
    return Training(header, state, drift)


@final
class Incoming:
    """One header, and what follows it; after an error it is of no use any more."""

    def __init__(self, header: Assign | Evaluate, layout: Layout, footing: Footing | None = None) -> None:
        self.header, self._layout = header, layout
        self._drift_bytes = _check_lengths(header, layout)
        self._followed = _followed(header, footing)
        self._receiver = self._expect(layout.nbytes)
        self._state: Vector | None = None

    def add(self, chunk: BulkChunk) -> None:
        self._receiver.add(chunk)

    def finish(self, trailer: Trailer) -> Work | None:
        """The work, or None while its drift is still to come."""
        vector = self._receiver.finish(trailer)
        if isinstance(self.header, Evaluate):
            return Measuring(self.header, vector)
        if self._state is not None:
            return Training(self.header, self._state, vector)
        if not self._drift_bytes:
            return Training(self.header, vector, self._followed)
        self._state, self._receiver = vector, self._expect(self._drift_bytes)
        return None

    def _expect(self, nbytes: int) -> Receiver:
        dtype = self._layout.dtype
        room = spares.room(spares.received, nbytes, dtype, self._layout.nbytes)
        return Receiver(nbytes, dtype, max_bytes=nbytes, out=room)


def _followed(header: Assign | Evaluate, footing: Footing | None) -> MakeDrift | None:
    """What makes the drift, if it follows from what is here."""
    if isinstance(header, Evaluate) or not header.HasField("drift_change"):
        return None
    if header.drift_bytes:
        raise ProtocolError(f"task {header.task_id} announces a drift, and another to be made")
    if footing is None:
        raise ProtocolError(
            f"the drift of task {header.task_id} follows from task {header.drift_change.task_id}, of which "
            "nothing is here"
        )
    return footing.follow(header.drift_change)


def _check_lengths(header: Assign | Evaluate, layout: Layout) -> int:
    """How many bytes of drift there are; raises if the vectors are not those of this model."""
    drift_bytes = header.drift_bytes if isinstance(header, Assign) else 0
    whole, drift = layout.nbytes, layout.parameters * np.dtype(layout.dtype).itemsize
    if header.state_bytes != whole or drift_bytes not in (0, drift):
        raise ProtocolError(
            f"task {header.task_id} announces a state of {header.state_bytes} bytes and a drift of "
            f"{drift_bytes}, this model has {whole} and {drift}; all peers must build the same one"
        )
    return drift_bytes
