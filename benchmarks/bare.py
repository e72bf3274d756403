"""The floor: a gRPC server that exchanges the messages of no-op rounds and does nothing else.

`python -m benchmarks.bare WORKERS PARAMETERS`. No engine, checks, checksums, store or session state; it sends
ready-made bytes, and of what comes in it looks at the first byte. With `--mean` it averages short updates.
"""

import argparse
import asyncio
import sys
from typing import Any

import grpc
import numpy as np
import uvloop

from benchmarks.line import TRAILER
from fedecado.common.allocator import keep_chunk_buffers
from fedecado.common.enclosed import field, is_short, with_fields
from fedecado.common.layout import Vector
from fedecado.common.timeouts import Timeouts
from fedecado.common.transport import server_options
from fedecado.common.wire import Frames
from fedecado.v1 import session_pb2 as pb


class Bare:
    """All workers of a round meet; then the next round begins."""

    def __init__(self, workers: int, parameters: int, *, mean: bool, drift: bool) -> None:
        vector = np.ones(parameters, np.float32)
        self._header = pb.Assign(
            task_id=1, weight=1.0, state_bytes=vector.nbytes, drift_bytes=vector.nbytes if drift else 0
        )
        self._mean, self._weights = mean, np.full(workers, 1 / workers, np.float32)
        self._rows = np.ones((workers if mean else 0, parameters), np.float32)
        self._drift = vector if drift else None
        self._messages = self._task(vector)
        self._joined = 0
        self._meeting = asyncio.Barrier(workers)

    async def session(self, _: Any, context: Any) -> None:
        """One worker, until it leaves."""
        await context.read()
        await context.write(_message(welcome=pb.Welcome()))
        own, self._joined = self._joined, self._joined + 1
        while True:
            if await self._meeting.wait() == 0 and self._mean:
                self._messages = self._task(self._weights @ self._rows)
            for message in self._messages:
                await context.write(message)
            if not await self._take(own, context):
                return
            accepted = pb.Acknowledge(task_id=1, outcome=pb.Acknowledge.OUTCOME_ACCEPTED)
            await context.write(_message(acknowledge=accepted))

    def _task(self, state: Vector) -> tuple[bytes, ...]:
        """The messages of a task: one if its vectors are short, as the coordinator sends them."""
        vectors = {pb.Assign.STATE_FIELD_NUMBER: state}
        if self._drift is not None:
            vectors[pb.Assign.DRIFT_FIELD_NUMBER] = self._drift
        if is_short(state):
            parts = (field(number, vector) for number, vector in vectors.items())
            return (with_fields(pb.CoordinatorMessage.ASSIGN_FIELD_NUMBER, self._header, *parts),)
        return _message(assign=self._header), *(frame for v in vectors.values() for frame in Frames(v))

    async def _take(self, own: int, context: Any) -> bool:
        """Read an update; false when the worker is gone."""
        while (data := await context.read()) is not grpc.aio.EOF:
            if self._mean:
                update = pb.WorkerMessage.FromString(data).update
                self._rows[own] = np.frombuffer(update.state.data, np.float32)
                return True
            if data.startswith(TRAILER):
                return True
        return False


def _message(**content: Any) -> bytes:
    return pb.CoordinatorMessage(**content).SerializeToString()


async def serve(floor: Bare) -> None:
    handler: Any = grpc.stream_stream_rpc_method_handler(floor.session)
    server = grpc.aio.server(options=server_options(Timeouts(120.0)))
    service = grpc.method_handlers_generic_handler("fedecado.v1.SessionService", {"Session": handler})
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}")
    sys.stdout.flush()
    await server.wait_for_termination()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workers", type=int)
    parser.add_argument("parameters", type=int)
    parser.add_argument("--mean", action="store_true", help="average short updates, and send the result")
    parser.add_argument("--drift", action="store_true", help="send every worker a second vector")
    chosen = parser.parse_args()
    await serve(Bare(chosen.workers, chosen.parameters, mean=chosen.mean, drift=chosen.drift))


if __name__ == "__main__":
    keep_chunk_buffers()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
