"""Updates in compact formats over real connections: whole runs, refusals, and lines that break."""

import asyncio
import json
import threading
from typing import Any

import numpy as np
import pytest
from processes import Processes, until
from protocol_client import LAYOUT
from wire_cut import Line

from fedecado.client.background import Background
from fedecado.client.connection import Address
from fedecado.client.observer import Answer, Observer
from fedecado.client.running import serve
from fedecado.client.surroundings import Surroundings
from fedecado.client.work import Identity, Outcome, Profile, Progress, Trained, Training, Work
from fedecado.common.feedback import Feedback
from fedecado.common.formats import BLOCK, decode, encode
from fedecado.common.layout import Layout, Vector
from fedecado.common.model_file import load_model
from fedecado.common.names import COMPACT, Compact
from fedecado.common.packed import NUMBERS
from fedecado.common.timeouts import Timeouts
from fedecado.v1 import admin_pb2
from fedecado.v1 import session_pb2 as pb
from fedecado.v1.session_pb2 import WorkerMessage

TWO = ("--rounds-min-clients", "2", "--rounds-min-updates", "2")
BYTES = {"full": 1.0, "float16": 0.5, "bfloat16": 0.5, "int8": 0.2525}
"""Of a model without buffers, whose blocks are not full."""
LIMIT = 60.0


async def finished(processes: Processes, *flags: str, given: tuple[str, ...] = ()) -> admin_pb2.RunStatus:
    """A run of two workers with these flags; `given` are the coordinator's."""
    coordinator, address = await processes.coordinator(*TWO, *given, "--linger", "none", "--store-record")
    workers = [
        await processes.worker(address, f"w{i}", "--index", str(i), "--clients", "2", *flags)
        for i in range(2)
    ]
    status = await until(address, lambda status: status.phase == admin_pb2.PHASE_FINISHED)
    assert [await worker.exits() for worker in workers] == [0, 0]
    coordinator.process.terminate()
    assert await coordinator.exits() == 0
    return status


@pytest.mark.parametrize("format", COMPACT)
async def test_worker_processes_train_and_the_run_can_be_computed_again(
    processes: Processes, format: Compact
) -> None:
    """What is stored is the state that came of an update, so a replay finds the same bits."""
    flags = ("--training-epochs", "2", "--task-arg", "partition=iid", "--upload-format", format)
    status = await finished(processes, *flags, given=("--rounds", "4"))
    layout, _, about = load_model(processes.model("last"))
    assert (status.updates_accepted, about["version"]) == (8, "4")
    assert status.bytes_received / (8 * layout.nbytes) == pytest.approx(BYTES[format], abs=0.01)
    replay = await processes.start("replay", "replay", "runs/run", "--json", "--quiet")
    assert await replay.exits() == 0
    told = json.loads("\n".join(replay.lines))
    assert (told["complete"], told["computed"], told["updates"], told["difference"]) == (True, 4, 8, None)


async def test_buffers_and_odd_sizes_pass(processes: Processes) -> None:
    flags = ("--task", "process_tasks:normed", "--training-batch-size", "64", "--upload-format", "int8")
    status = await finished(processes, *flags, given=("--rounds", "2"))
    _, state, _ = load_model(processes.model("last"))
    assert status.updates_accepted == 4
    assert np.isfinite(state).all()


async def test_a_worker_sends_in_full_what_its_coordinator_does_not_take(processes: Processes) -> None:
    flags = ("--task", "process_tasks:point", "--upload-format", "int8")
    given = ("--rounds", "1", "--coordinator-upload-formats", "float16")
    status = await finished(processes, *flags, given=given)
    assert status.updates_accepted == 2
    for worker in processes.commands[1:3]:
        assert await worker.says("does not take updates in int8, so they go in full; .* it takes: float16")


async def test_a_format_that_is_unknown_or_not_taken_is_refused_and_the_session_goes_on(
    start: Any, connect: Any
) -> None:
    limited = {"upload_formats": ("float16",)}
    async with start(retry=0.01, plan=limited) as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        for number, name in ((77, "format 77"), (NUMBERS["int8"], "int8")):
            assign, state = await client.receive_assign()
            await client.send_update(assign, state, format=number)
            refused = await client.expect(pb.Acknowledge)
            assert refused.outcome == pb.Acknowledge.OUTCOME_REFUSED
            assert refused.reason == pb.Acknowledge.REASON_FORMAT
            assert f"came as {name}, but" in refused.message and "another upload.format" in refused.message
        await client.work()
        assert coordinator.run.journal.accepted == 1


async def test_the_welcome_names_the_formats_that_are_taken(start: Any, connect: Any) -> None:
    async with start() as coordinator, connect(coordinator, "w1", expect=None) as client:
        welcome = await client.expect(pb.Welcome)
        assert list(welcome.upload_formats) == [NUMBERS[name] for name in COMPACT]


async def test_an_update_that_starts_elsewhere_is_refused(start: Any, connect: Any) -> None:
    async with start(retry=0.01) as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        assign, state = await client.receive_assign()
        packed = encode("int8", LAYOUT, state, state + np.float32(0.1))
        sent = {"format": NUMBERS["int8"], "model_version": 5}
        await client.send_update(assign, packed.payload, **sent)
        refused = await client.expect(pb.Acknowledge)
        assert refused.reason == pb.Acknowledge.REASON_INVALID and "starts from 5" in refused.message


class Walker:
    """A learner that makes the same step each time; most of it is smaller than what a byte tells apart."""

    def __init__(self, layout: Layout) -> None:
        self.profile = Profile(layout, np.zeros(layout.size, np.float32), samples=10)
        self.step = np.random.default_rng(0).uniform(-0.01, 0.01, layout.size).astype(np.float32)
        self.step[0] = 1.0
        self.go = threading.Semaphore(0)
        self.starts: list[Vector] = []

    def run(self, work: Work, progress: Progress) -> Outcome:
        assert isinstance(work, Training)
        self.go.acquire(timeout=LIMIT)
        self.starts.append(work.state.copy())
        return Trained(work.state + self.step, 0.1, work.header.weight, 1, 1, None, None, None, 0.0)


class Watch(Observer):
    """Tells when a task has arrived, and when its update goes out."""

    def __init__(self) -> None:
        self._begun: asyncio.Queue[int] = asyncio.Queue()
        self._sent: asyncio.Queue[int] = asyncio.Queue()

    async def begun(self) -> int:
        """The next task that has arrived. One that got lost on the way was given out again as another."""
        return await self._begun.get()

    async def sent(self, task: int) -> None:
        while await self._sent.get() != task:
            pass

    def started(self, work: Work) -> None:
        self._begun.put_nowait(work.header.task_id)

    def sending(self, work: Work, message: WorkerMessage) -> None:
        self._sent.put_nowait(work.header.task_id)

    def connected(self, connected: bool) -> None:
        pass

    def finished(self, work: Work, outcome: Outcome) -> None:
        pass

    def answered(self, task: int, answer: Answer) -> None:
        pass

    def dropped(self, task: int) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize("format", COMPACT)
async def test_an_update_counts_once_however_often_the_line_breaks_and_rounding_is_paid_once(
    start: Any, format: Compact
) -> None:
    """Of one client the mean is its own state, so the model tells what arrived, to the last bit."""
    rounds, layout = 9, Layout.flat(2 * BLOCK + 100)
    walker, watch, background, stopping = Walker(layout), Watch(), Background(), asyncio.Event()
    async with (
        asyncio.timeout(LIMIT),
        start(algorithm="fedavg", max_rounds=rounds) as coordinator,
        Line(coordinator.address) as line,
    ):
        address, identity = Address(line.address, Timeouts(3.0)), Identity("w1", "trainer", incarnation=7)
        around = Surroundings(observer=watch, upload=format)
        worker = asyncio.create_task(serve(address, identity, lambda: walker, background, stopping, around))
        for number in range(1, rounds + 1):
            task = await watch.begun()
            match number % 3:
                case 1:  # it arrives, but the acknowledgement does not
                    line.hold_answers()
                    walker.go.release()
                    await accepted(coordinator, number)
                    line.cut()
                case 2:  # it does not arrive, and is sent again
                    line.hold()
                    walker.go.release()
                    await watch.sent(task)
                    line.cut()
                    await accepted(coordinator, number)
                case _:
                    walker.go.release()
                    await accepted(coordinator, number)
        assert (await worker).code == 0
        assert coordinator.run.journal.accepted == rounds
        central = coordinator.run.federation.central
    await background.close(LIMIT)
    account, x = Feedback(format), walker.profile.initial
    for task, seen in enumerate(walker.starts):
        np.testing.assert_array_equal(seen, x)
        x = decode(account.pack(task, layout, x, x + walker.step), layout, x)
        account.settle(task, counted=True)
    np.testing.assert_array_equal(central, x)
    assert np.abs(x - rounds * walker.step).max() < 1 / 127, "what is owed is one rounding, not nine"


async def accepted(coordinator: Any, count: int) -> None:
    while coordinator.run.journal.accepted < count:
        await coordinator.run.changed.wait()
