"""A coordinator of the test's own, over real gRPC, and workers for it."""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any, Self

import grpc
import numpy as np
import torch
from google.protobuf.message import Message
from torch import nn

from fedecado.client.background import Background
from fedecado.client.connection import Address
from fedecado.client.effects import Leave
from fedecado.client.running import serve
from fedecado.client.task import Context, Role, Task
from fedecado.client.trainer import Habits, Trainer
from fedecado.client.window import Plan
from fedecado.client.work import Identity, Learner, Outcome, Profile, Progress, Trained, Work
from fedecado.common.layout import Layout, Vector
from fedecado.common.timeouts import Timeouts
from fedecado.common.transport import server_options
from fedecado.common.wire import BulkChunk, Receiver, encode, parse_worker_message, serialize_message
from fedecado.v1.session_pb2 import (
    Acknowledge,
    Assign,
    CoordinatorBye,
    CoordinatorMessage,
    HeldTaskAnswer,
    Hello,
    Intervals,
    ProtocolVersion,
    Update,
    Welcome,
    WorkerMessage,
)

LIMIT = 60
"""Seconds for a step of a test, on a machine however slow."""
TIMEOUTS = Timeouts(6.0)
BIG = 700_000
"""Numbers of a state that travels in three chunks."""


class Line:
    """The coordinator's end of one session."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.over = asyncio.Event()

    async def message(self) -> WorkerMessage | BulkChunk | None:
        """The next message but for progress; None at the end."""
        while True:
            async with asyncio.timeout(LIMIT):
                message = await self._context.read()
            if message is grpc.aio.EOF:
                return None
            if isinstance(message, BulkChunk) or message.WhichOneof("content") != "progress":
                assert isinstance(message, WorkerMessage | BulkChunk)
                return message

    async def expect(self, kind: str) -> Any:
        message = await self.message()
        assert isinstance(message, WorkerMessage), f"{message} instead of {kind}"
        assert message.WhichOneof("content") == kind
        return getattr(message, kind)

    async def progress(self) -> Any:
        async with asyncio.timeout(LIMIT):
            message = await self._context.read()
        assert message.WhichOneof("content") == "progress"
        return message.progress

    async def vector(self, nbytes: int) -> Vector:
        receiver = Receiver(nbytes, max_bytes=nbytes)
        while isinstance(message := await self.message(), BulkChunk):
            receiver.add(message)
        assert isinstance(message, WorkerMessage)
        return receiver.finish(message.trailer)

    async def update(self) -> tuple[Update, Vector]:
        update = await self.expect("update")
        return update, await self.vector(update.state_bytes)

    async def send(self, content: Message) -> None:
        message = CoordinatorMessage()
        [name] = [f.name for f in message.DESCRIPTOR.fields if f.message_type is content.DESCRIPTOR]
        getattr(message, name).CopyFrom(content)
        await self._context.write(message)

    async def welcome(self, minor: int = 0, **fields: Any) -> Hello:
        """Take Hello, welcome the worker and ask for everything that it holds."""
        hello = await self.expect("hello")
        answers = [
            HeldTaskAnswer(task_id=held.task_id, verdict=HeldTaskAnswer.VERDICT_SEND)
            for held in hello.held_tasks
        ]
        intervals = Intervals(progress_seconds=0.001)
        welcome = Welcome(run_id="r", held_tasks=answers, intervals=intervals, **fields)
        welcome.protocol.CopyFrom(ProtocolVersion(major=1, minor=minor))
        await self.send(welcome)
        assert isinstance(hello, Hello)
        return hello

    async def assign(self, task: int, state: Vector, drift: Vector | None = None) -> None:
        drift_bytes = 0 if drift is None else drift.nbytes
        header = Assign(task_id=task, model_version=task, weight=1.0, state_bytes=state.nbytes)
        header.drift_bytes = drift_bytes
        await self.send(header)
        for vector in (state, drift):
            for frame in [] if vector is None else encode(vector):
                await self._context.write(frame)

    async def accept(self, task: int) -> None:
        await self.send(Acknowledge(task_id=task, outcome=Acknowledge.OUTCOME_ACCEPTED))

    async def finish(self, reason: CoordinatorBye.Reason.ValueType = CoordinatorBye.REASON_FINISHED) -> None:
        await self.send(CoordinatorBye(reason=reason))
        self.over.set()


class Coordinator:
    """A server whose sessions the test leads by hand; may be killed and started again on its port."""

    def __init__(self) -> None:
        self.port = 0
        self._lines: asyncio.Queue[Line] = asyncio.Queue()

    async def start(self) -> Self:
        handler = grpc.stream_stream_rpc_method_handler(
            self._session, request_deserializer=parse_worker_message, response_serializer=serialize_message
        )
        self._server = grpc.aio.server(options=server_options(TIMEOUTS))
        service = grpc.method_handlers_generic_handler("fedecado.v1.SessionService", {"Session": handler})
        self._server.add_generic_rpc_handlers((service,))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()
        return self

    async def kill(self) -> None:
        await self._server.stop(None)

    async def line(self) -> Line:
        """The next session that a worker opens."""
        async with asyncio.timeout(LIMIT):
            return await self._lines.get()

    async def _session(self, requests: Any, context: Any) -> None:
        line = Line(context)
        self._lines.put_nowait(line)
        await line.over.wait()


class Station:
    """A worker in the test's own event loop."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.stopping = asyncio.Event()
        self.timeouts = TIMEOUTS
        self.background = Background()

    async def serve(self, make: Callable[[], Learner], role: Role = "trainer") -> Leave:
        address = Address(f"127.0.0.1:{self.coordinator.port}", self.timeouts)
        identity = Identity("w1", role, incarnation=7)
        async with asyncio.timeout(LIMIT):
            return await serve(address, identity, make, self.background, self.stopping)

    async def first_task(self, learner: Learner) -> Line:
        """Welcome the worker, and give it the learner's own state to train from."""
        line = await self.coordinator.line()
        await line.welcome()
        await line.assign(1, learner.profile.initial)
        return line


class Puppet:
    """A learner that waits for the test before each result."""

    def __init__(self, size: int = 3) -> None:
        self.profile = Profile(Layout.flat(size), np.zeros(size, "float32"), samples=10)
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)
        self.runs: list[int] = []

    def run(self, work: Work, progress: Progress) -> Outcome:
        self.runs.append(work.header.task_id)
        self.begun.release()
        self.go.acquire(timeout=LIMIT)
        return Trained(work.state + 1, 0.1, 1.0, 1, 1, None, None, None, 0.0)


def quick(size: int = 3) -> Puppet:
    puppet = Puppet(size)
    puppet.go.release(100)
    return puppet


def least_squares(context: Context, epochs: int = 2, loss: Any = None) -> Trainer:
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    data = (x, x @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]]))

    def mean_square(model: nn.Module, batch: Any) -> torch.Tensor:
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    def evaluate(model: nn.Module) -> dict[str, float]:
        return {"loss": float(mean_square(model, data))}

    task = Task(nn.Linear(4, 1), data, loss or mean_square, evaluate)
    return Trainer(task, context, torch.device("cpu"), Habits(Plan(0.1, epochs=epochs, batch_size=16)))


TRAINER, EVALUATOR = Context(0, 1, 0), Context(0, 1, 0, "evaluator")


class Signs(logging.Handler):
    """Lets a test wait for a log line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.put_nowait(record.getMessage())

    async def wait(self, part: str) -> str:
        async with asyncio.timeout(LIMIT):
            while part not in (line := await self.lines.get()):
                pass
        return line
