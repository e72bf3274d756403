"""Coordinators and workers as processes of their own: whole runs, and who is turned away."""

import json

import numpy as np
import torch
from process_tasks import Normed
from processes import READY, Processes, clients, closed_rounds, until
from protocol_client import ProtocolClient

from fedecado.client.load import load_into
from fedecado.client.tasks.models import mlp
from fedecado.common.layout import Layout
from fedecado.common.model_file import load_model
from fedecado.v1 import session_pb2

POINT = ("--task", "process_tasks:point", "--training-probes", "1")


async def test_a_run_on_digits_ends_by_itself_and_leaves_models_that_work(processes: Processes) -> None:
    coordinator, address = await processes.coordinator(
        "--rounds", "4", "--rounds-min-clients", "3", "--evaluate-every", "4"
    )
    share = ("--clients", "3", "--training-epochs", "2", "--task-arg", "partition=iid")
    workers = [await processes.worker(address, f"w{i}", "--index", str(i), *share) for i in range(3)]
    workers.append(await processes.worker(address, "judge", "--role", "evaluator"))
    assert [await command.exits() for command in (coordinator, *workers)] == [0] * 5
    metadata = {which: load_model(processes.model(which))[2] for which in ("last", "best")}
    assert (metadata["last"]["version"], metadata["best"]["version"]) == ("4", "4")
    assert json.loads(metadata["best"]["metrics"])["accuracy"] > 0.5, "chance is 0.1"
    model = load_into(mlp(64, (64,), 10, seed=1), processes.model("last"))
    assert all(torch.isfinite(p).all() for p in model.parameters())


async def test_a_coordinator_never_imports_torch(processes: Processes) -> None:
    script = (
        "import sys; from fedecado.cli.main import main; code = main(sys.argv[1:]); "
        "print('heavy:', sorted({'torch', 'sklearn', 'matplotlib', 'pandas'} & sys.modules.keys())); "
        "sys.exit(code)"
    )
    command = await processes.python(
        "coordinator", "-c", script, "coordinator", "--bind", "127.0.0.1:0", "--rounds", "1"
    )
    address = (await command.says(READY)).split()[-1]
    async with ProtocolClient(address, "w1", Layout.flat(10)) as client:
        await client.hello()
        await client.send_initial()
        await client.work()
        await client.expect(session_pb2.CoordinatorBye)
    assert await command.exits() == 0
    assert await command.says("heavy:") == "heavy: []"


async def test_a_worker_with_another_model_exits_with_the_coordinators_words(processes: Processes) -> None:
    _, address = await processes.coordinator()
    async with ProtocolClient(address, "first", Layout.flat(10)) as client:
        await client.hello()
        stranger = await processes.worker(address, "stranger", *POINT)
        assert await stranger.exits() == 1, stranger.text
        assert await stranger.says("build the same model on every worker")
        assert (await until(address, lambda status: True)).clients.enrolled == 0


async def test_a_worker_of_another_protocol_version_exits_with_the_coordinators_words(
    processes: Processes,
) -> None:
    _, address = await processes.coordinator()
    script = (
        "import sys, fedecado.v1; fedecado.v1.PROTOCOL_MAJOR = 99; "
        "from fedecado.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    newer = await processes.python("newer", "-c", script, "worker", "--coordinator", address, *POINT)
    assert await newer.exits() == 1, newer.text
    assert await newer.says("you speak protocol 99, this coordinator 1; install the same")


async def test_the_second_of_two_workers_with_one_id_waits_and_takes_over(processes: Processes) -> None:
    coordinator, address = await processes.coordinator(
        "--rounds", "3", "--rounds-min-clients", "2", "--network-peer-loss", "3"
    )
    common = (*POINT, "--network-peer-loss", "3")
    first = await processes.worker(address, "twin", *common)
    await first.says("enrolled as twin")
    second = await processes.worker(address, "twin", *common)
    await second.says("another process is connected as 'twin'.*next try in")
    first.process.kill()
    await second.says("enrolled as twin .number 0.")
    other = await processes.worker(address, "other", *common)
    assert [await command.exits() for command in (coordinator, second, other)] == [0, 0, 0]
    last = load_model(processes.model("last"))[2]
    assert last["version"] == "3"


async def test_user_code_that_raises_is_shown_with_its_traceback_and_asked_again(
    processes: Processes,
) -> None:
    coordinator, address = await processes.coordinator(
        "--rounds", "1", "--rounds-retry", "0.1", "--linger", "none"
    )
    worker = await processes.worker(address, "w1", "--task", "process_tasks:failing")
    assert await worker.exits() == 0, processes.text()
    await until(address, lambda status: status.rounds_closed == 1)
    status = await processes.start("status", "status", "--json", "--tracebacks", "--coordinator", address)
    assert await status.exits() == 0, status.text
    (shown,) = json.loads("\n".join(status.lines))["clients"]
    assert int(shown["tasks_failed"]) == 1 and int(shown["updates_accepted"]) == 1
    assert "the scale of feature 7 is zero" in shown["last_error"]["message"]
    assert "process_tasks.py" in shown["last_error"]["traceback"]
    stop = await processes.start("stop", "stop", "--coordinator", address)
    assert await stop.exits() == 0, stop.text
    coordinator.process.terminate()
    assert await coordinator.exits() == 0


async def test_buffers_travel_and_are_averaged_and_frozen_parameters_stay(processes: Processes) -> None:
    coordinator, address = await processes.coordinator(
        "--rounds", "1", "--rounds-min-clients", "2", "--linger", "none"
    )
    task = ("--task", "process_tasks:normed", "--clients", "2", "--training-batch-size", "64")
    workers = [await processes.worker(address, f"w{i}", *task, "--index", str(i)) for i in range(2)]
    assert [await worker.exits() for worker in workers] == [0, 0]
    (closed,) = await closed_rounds(address)
    assert sorted(closed.worker_ids) == ["w0", "w1"]
    assert {client.weight for client in (await clients(address)).values()} == {1.0}
    coordinator.process.terminate()
    assert await coordinator.exits() == 0
    layout, state, _ = load_model(processes.model("last"))
    names = [entry.name for entry in layout.entries]
    assert not any(name.startswith("frozen") for name in names)
    assert names[-2:] == ["norm.running_mean", "norm.running_var"]
    # One step of momentum 0.1 from 0 to the means of both clients' inputs, which are 0 and 10.
    torch.manual_seed(0)
    model = Normed()
    expected = 0.1 * model.frozen(torch.full((1, 4), 5.0))[0]
    np.testing.assert_allclose(layout.unpack(state)["norm.running_mean"], expected.detach().numpy(), atol=0.1)
    load_into(model, processes.model("last"))


async def test_a_port_in_use_is_refused_and_free_again_when_its_coordinator_is_gone(
    processes: Processes,
) -> None:
    coordinator, address = await processes.coordinator()
    second = await processes.start("second", "coordinator", "--bind", address)
    assert await second.exits() == 2, second.text
    assert await second.says("is another process using that port")
    coordinator.process.terminate()
    assert await coordinator.exits() == 0
    third, again = await processes.coordinator(bind=address)
    assert again == address
    third.process.terminate()
    assert await third.exits() == 0
