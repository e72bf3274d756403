"""A coordinator's sessions under any script of several streams, without a network.

Only the transport is played: what gRPC would hand over is read from a list. Run, engine, inbox and federation
are real.
"""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
from hostile_messages import LAYOUT, STATE, frames, fuzz
from hypothesis import given
from hypothesis import strategies as st

from fedecado.common.enclosed import enclose
from fedecado.common.errors import ProtocolError
from fedecado.common.formats import encode as pack
from fedecado.common.formats import packed_bytes
from fedecado.common.names import COMPACT
from fedecado.common.packed import NUMBERS
from fedecado.common.timeouts import Timeouts
from fedecado.common.wire import encode, parse_worker_message, serialize_message
from fedecado.server.algorithms import make_algorithm
from fedecado.server.coordinator.about import About
from fedecado.server.coordinator.models import ModelFiles
from fedecado.server.coordinator.quotas import Quotas
from fedecado.server.coordinator.run import Run
from fedecado.server.coordinator.service import SessionService
from fedecado.server.rounds import Engine, Rules
from fedecado.v1 import session_pb2 as pb


class Line:
    """What gRPC gives a servicer: the messages of a script, then the end."""

    def __init__(self, script: list[bytes]) -> None:
        self._script, self.said = list(script), list[pb.CoordinatorMessage]()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def auth_context(self) -> dict[str, Any]:
        return {}

    async def read(self) -> Any:
        await asyncio.sleep(0)
        if not self._script:
            return None
        try:
            return parse_worker_message(self._script.pop(0))
        except ProtocolError:
            return None  # as gRPC ends a stream whose bytes it cannot read

    async def write(self, message: Any) -> None:
        self.said.append(pb.CoordinatorMessage.FromString(serialize_message(message)))


def hello(worker: str, role: Any = pb.ROLE_TRAINER, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "protocol": pb.ProtocolVersion(major=1),
        "worker_id": worker,
        "incarnation": 7,
        "connection": 1,
        "role": role,
        "layout_json": LAYOUT.to_json(),
        "layout_digest": LAYOUT.digest,
        "samples": 3,
        **changes,
    }
    return pb.WorkerMessage(hello=pb.Hello(**fields)).SerializeToString()


def header(task: int, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "task_id": task,
        "window": 0.1,
        "weight": 1.0,
        "layout_digest": LAYOUT.digest,
        "state_bytes": LAYOUT.nbytes,
        **changes,
    }
    return pb.WorkerMessage(update=pb.Update(**fields)).SerializeToString()


FAIR = st.sampled_from(
    [
        *encode(STATE),
        *(header(task) for task in (1, 2, 3)),
        header(1, model_version=9),
        *(header(task, state=enclose(STATE)) for task in (1, 2, 3)),
        header(1, state=enclose(STATE[:3])),
        *(header(1, format=NUMBERS[name], state_bytes=packed_bytes(name, LAYOUT)) for name in COMPACT),
        *(frame for name in COMPACT for frame in encode(pack(name, LAYOUT, STATE, STATE).payload)),
        pb.WorkerMessage(
            initial_state=pb.InitialState(layout_digest=LAYOUT.digest, state_bytes=LAYOUT.nbytes)
        ).SerializeToString(),
    ]
)
BEGINNINGS = st.sampled_from(
    [
        *(hello("w1"), hello("w2"), hello("w1", connection=2), hello("e", pb.ROLE_EVALUATOR)),
        hello("w3", protocol=pb.ProtocolVersion(major=1, minor=2)),
    ]
)
SCRIPTS = st.builds(
    lambda first, rest: [first, *rest],
    BEGINNINGS | frames(pb.WorkerMessage),
    st.lists(FAIR | frames(pb.WorkerMessage), max_size=8),
)


@fuzz(0.1)
@given(st.booleans(), st.lists(SCRIPTS, min_size=1, max_size=3))
def test_no_script_breaks_the_run_or_leaves_anything_behind(begun: bool, scripts: list[list[bytes]]) -> None:
    asyncio.run(play(begun, scripts))


async def play(begun: bool, scripts: list[list[bytes]]) -> None:
    files = ModelFiles(Path("/nonexistent"), "run")
    run = Run(Engine(Rules(max_rounds=2, retry=60.0)), make_algorithm("fedecado"), files)
    run._keeping.save = lambda *_: None  # type: ignore[method-assign]  # nothing is to be written in a fuzzing run
    quotas = Quotas()
    service = SessionService(run, Timeouts(), About("run", "fedecado", "0"), quotas=quotas)
    try:
        if begun:
            await run.start_from(LAYOUT, STATE)
        lines = [Line(script) for script in scripts]
        await asyncio.gather(*(service.session(None, line) for line in lines))
        assert run.failure is None
        assert (quotas.sessions, quotas.memory) == (0, 0)
        assert all(member.session is None for member in run.members.by_id.values())
        if run.federation is not None:
            assert np.isfinite(run.federation.central).all()
    finally:
        await run.beside.settle()
        run.beside.close()
