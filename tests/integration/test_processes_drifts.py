"""Drifts that worker processes make themselves: fewer bytes, the same model."""

import numpy as np
import pytest
from processes import Processes, until

from fedecado.common.layout import Vector
from fedecado.common.model_file import load_model
from fedecado.server.numerics import native
from fedecado.v1 import admin_pb2

ROUNDS = 6


async def run(processes: Processes, name: str, *flags: str) -> tuple[float, Vector]:
    """Models sent by the coordinator, and the last model of a run of two workers."""
    given = (
        "--rounds-min-clients",
        "2",
        "--rounds-min-updates",
        "2",
        "--rounds",
        str(ROUNDS),
        "--name",
        name,
    )
    _, address = await processes.coordinator(*given, "--linger", "none")
    task = ("--task", "process_tasks:point", "--task-arg", "megabytes=1.0", "--clients", "2")
    workers = [
        await processes.worker(address, f"w{i}", "--index", str(i), *task, "--training-rate", "0.05", *flags)
        for i in range(2)
    ]
    status = await until(address, lambda status: status.phase == admin_pb2.PHASE_FINISHED)
    assert [await worker.exits() for worker in workers] == [0, 0]
    layout, state, _ = load_model(processes.model("last", name))
    return status.bytes_sent / layout.nbytes, state


@pytest.mark.parametrize("format", ["full", "int8"])
async def test_a_run_of_drifts_that_are_made_ends_where_one_of_drifts_that_are_sent_does(
    processes: Processes, format: str
) -> None:
    if native.kernels() is None:
        pytest.skip("without a C compiler only drifts of more than 64 MiB are made by workers")
    upload = ("--upload-format", format)
    made, model = await run(processes, "made", *upload)
    sent, same = await run(processes, "sent", *upload, "--worker-drifts", "sent")
    # From its second task on each worker has a drift, and from the third on it can make that.
    assert (made, sent) == (2 * (ROUNDS + 1), 2 * (2 * ROUNDS - 1))
    assert np.abs(model[:4]).max() > 0.1, "it was trained"
    np.testing.assert_allclose(model, same, rtol=0, atol=1e-5 if format == "full" else 1e-3)
