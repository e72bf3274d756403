"""What a worker's messages amount to, without I/O.

A transfer is a header, chunks and a trailer, or a header that encloses its vector. The inbox collects it
into one vector, checking as it goes. When something is wrong with it, the rest of the transfer is passed over
and reported as spoiled with its header, so that the sender can be told why; the session goes on.
"""

import math
from collections.abc import Callable
from typing import final

from fedecado.common import enclosed, spares
from fedecado.common.errors import FedecadoError, LayoutError, ProtocolError, QuotaError
from fedecado.common.formats import packed_bytes
from fedecado.common.layout import DType, Layout, Vector
from fedecado.common.names import COMPACT, Compact
from fedecado.common.packed import PackedReceiver, accepted_format
from fedecado.common.records import record
from fedecado.common.wire import BulkChunk, Receiver
from fedecado.server.coordinator.quotas import Quotas
from fedecado.server.federation import Result
from fedecado.server.numerics.native import taking
from fedecado.server.store import Landing
from fedecado.v1 import session_pb2 as pb
from fedecado.v1.transfer_pb2 import Trailer

Header = pb.Update | pb.InitialState


@record
class Received:
    """A whole vector and its header."""

    header: Header
    vector: Vector
    square: float = math.nan
    """Squared length of the vector."""
    landing: Landing | None = None
    """The file that the vector goes to already."""

    @property
    def enclosed(self) -> bool:
        """Whether all of it came in one message."""
        return isinstance(self.header, pb.Update) and self.header.HasField("state")


@record
class Spoiled:
    """A transfer that cannot be used."""

    header: Header
    error: FedecadoError


@record
class Unwanted:
    """A transfer that was passed over: nobody asked for it, or it is here already."""

    header: Header


Arrival = Received | Spoiled | Unwanted | pb.Progress | pb.Evaluation | pb.TaskFailed | pb.WorkerBye


@final
class Inbox:
    """Turns a session's messages, after its Hello, into arrivals; ask `close` for an end.

    `wanted` is asked before memory is taken for a transfer; what is not wanted is passed over. `start` gives
    the state that an update's task began with, for those that come in one of the compact `formats`.
    """

    def __init__(
        self,
        layout: Callable[[], Layout | None],
        *,
        wanted: Callable[[Header], bool] = lambda header: True,
        quotas: Quotas | None = None,
        land: Callable[[int, DType], Landing | None] = lambda nbytes, dtype: None,
        start: Callable[[Header], Vector | None] = lambda header: None,
        formats: tuple[Compact, ...] = COMPACT,
    ) -> None:
        self._land, self._start, self._formats = land, start, formats
        self._layout, self._wanted, self._quotas = layout, wanted, quotas or Quotas()
        self._reserved = 0
        self._header: Header | None = None
        self._receiver: Receiver | PackedReceiver | None = None
        self._landing: Landing | None = None
        self._error: FedecadoError | None = None

    @property
    def receiving(self) -> bool:
        """Whether a transfer is under way."""
        return self._header is not None

    @property
    def expected(self) -> int:
        """How many bytes the transfer under way announced; no more than a model has."""
        return 0 if self._receiver is None or self._header is None else self._header.state_bytes

    def close(self) -> None:
        """Let go of what was half received. Idempotent."""
        self._header = self._receiver = self._landing = self._error = None
        self._release()

    def take(self, message: pb.WorkerMessage | BulkChunk) -> Arrival | None:
        """The arrival that this message completes, if any; ProtocolError ends the session."""
        if isinstance(message, BulkChunk):
            self._chunk(message)
            return None
        match message.WhichOneof("content"):
            case "trailer":
                return self._trailer(message.trailer)
            case "update":
                return self._update(message.update)
            case "initial_state":
                self._begin(message.initial_state)
            case "progress" | "evaluation" | "task_failed" | "bye" as kind:
                arrival: Arrival = getattr(message, kind)
                return arrival
            case "hello":
                raise ProtocolError("a second Hello on one stream")
            case _:
                pass  # a newer peer's message; minor versions only add
        return None

    def _update(self, header: pb.Update) -> Arrival | None:
        if header.HasField("state"):
            self.close()
            return self._opened(header)
        self._begin(header)
        return None

    def _opened(self, header: pb.Update) -> Arrival:
        """What an update is that came in one message; it takes no memory that is not taken already."""
        try:
            layout, compact = self._fitting(header)
            if not self._wanted(header):
                return Unwanted(header)
            if compact is None:
                return Received(header, *enclosed.opened(header.state, layout.nbytes, layout.dtype))
            if (start := self._start(header)) is None:
                return Unwanted(header)
            receiver, (chunk, trailer) = (
                PackedReceiver(compact, layout, start),
                enclosed.as_transfer(header.state),
            )
            receiver.add(chunk)
            return Received(header, receiver.finish(trailer), receiver.square)
        except FedecadoError as error:
            return Spoiled(header, error)

    def _fitting(self, header: Header) -> tuple[Layout, Compact | None]:
        """The run's layout, and the compact format of an update; raises if the header does not fit them."""
        layout, digest, size = self._layout(), header.layout_digest, header.state_bytes
        if layout is None or digest != layout.digest:
            known = "none yet" if layout is None else layout.digest[:12]
            raise LayoutError(
                f"the update's layout is {digest[:12]!r}, the run's {known}; use the same model"
            )
        compact = accepted_format(header.format, self._formats) if isinstance(header, pb.Update) else None
        due = layout.nbytes if compact is None else packed_bytes(compact, layout)
        if size != due:
            raise LayoutError(f"the update announces {size} bytes, the model has {due}")
        return layout, compact

    def _begin(self, header: Header) -> None:
        # A new header discards an unfinished transfer: the worker started over.
        self.close()
        self._header = header
        try:
            layout, compact = self._fitting(header)
            if not self._wanted(header):
                return
            self._quotas.reserve(layout.nbytes)
            self._reserved = layout.nbytes
            out: Vector | None = None
            if isinstance(header, pb.Update):  # a model to start from stays, and one is all there is of it
                self._landing = self._land(layout.nbytes, layout.dtype)
                if self._landing is None:
                    out = spares.room(spares.received, layout.nbytes, layout.dtype)
                else:
                    out = self._landing.vector
            if compact is None:
                size = layout.nbytes
                take = taking(layout.dtype)
                self._receiver = Receiver(size, layout.dtype, max_bytes=size, out=out, take=take)
            elif (start := self._start(header)) is not None:
                self._receiver = PackedReceiver(compact, layout, start, out)
        except QuotaError:
            raise
        except FedecadoError as error:
            self._error = error

    def _chunk(self, chunk: BulkChunk) -> None:
        if self._header is None:
            raise ProtocolError(f"a chunk at byte {chunk.offset} without a header")
        if self._receiver is None:
            return
        try:
            self._receiver.add(chunk)
            if self._landing is not None:
                self._landing.reached(self._receiver.received)
        except FedecadoError as error:
            self._error, self._receiver, self._landing = error, None, None
            self._release()

    def _release(self) -> None:
        self._quotas.release(self._reserved)
        self._reserved = 0

    def _trailer(self, trailer: Trailer) -> Arrival:
        if self._header is None:
            raise ProtocolError("a trailer without a header")
        header, receiver, landing, error = self._header, self._receiver, self._landing, self._error
        self.close()
        if receiver is not None:
            try:
                vector = receiver.finish(trailer)
                if landing is not None:
                    crc = receiver.crc if isinstance(receiver, PackedReceiver) else trailer.crc32
                    landing.crc = crc
                return Received(header, vector, receiver.square, landing)
            except FedecadoError as damaged:
                error = damaged
        return Unwanted(header) if error is None else Spoiled(header, error)


def result_of(header: pb.Update, received: Received, curvature: float) -> Result:
    """What a client made of its task; `curvature` is the one known of it before."""
    return Result(
        state=received.vector,
        square=received.square,
        landing=received.landing,
        time=header.window,
        curvature=header.curvature if header.HasField("curvature") else curvature,
        steps=header.steps,
        loss_before=header.loss_before if header.HasField("loss_before") else math.nan,
        loss_after=header.loss_after if header.HasField("loss_after") else math.nan,
    )
