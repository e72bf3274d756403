"""A run seen from outside: shown until it is over, and remembered as the simulator remembers one."""

import math
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from fedecado.cli.watching import Watcher, history_of
from fedecado.common.errors import FedecadoError
from fedecado.v1 import admin_pb2 as pb


def status(phase: "pb.Phase.ValueType", rounds: int = 0, **fields: Any) -> pb.RunStatus:
    return pb.RunStatus(phase=phase, rounds_closed=rounds, **fields)


async def test_a_run_is_shown_until_it_is_finished(coordinator: Any) -> None:
    latest = pb.ModelMetrics(model_version=2, metrics={"accuracy": 0.5})
    coordinator.streams = [
        [
            status(pb.PHASE_WAITING),
            status(pb.PHASE_RUNNING, 2, latest=latest),
            status(pb.PHASE_FINISHED, 3),
            None,
        ]
    ]
    async with Watcher(coordinator.target, 3) as watcher:
        await watcher.show()
        assert watcher.begun


async def test_a_run_whose_first_round_was_never_open_has_not_begun(coordinator: Any) -> None:
    coordinator.streams = [[status(pb.PHASE_WAITING), status(pb.PHASE_FINISHED), None]]
    async with Watcher(coordinator.target, 3) as watcher:
        await watcher.show()
        assert not watcher.begun


async def test_a_coordinator_that_ends_early_is_an_error_in_words(coordinator: Any) -> None:
    coordinator.streams = [[status(pb.PHASE_RUNNING, 1)]]
    async with Watcher(coordinator.target, 3) as watcher:
        with pytest.raises(FedecadoError, match="ended before the run was over"):
            await watcher.show()


async def test_a_coordinator_that_cannot_be_asked_is_an_error_in_words(coordinator: Any) -> None:
    async with Watcher(coordinator.target, 3) as watcher:
        coordinator.refusal = grpc.StatusCode.UNAVAILABLE, "gone"
        with pytest.raises(FedecadoError, match="lost the coordinator"):
            await watcher.rounds()


def test_closed_rounds_become_a_history() -> None:
    def closed(number: int, **fields: Any) -> pb.Round:
        return pb.Round(
            number=number,
            opened=Timestamp(seconds=100 + number - 1),
            closed=Timestamp(seconds=100 + number),
            window=0.5,
            worker_ids=["a", "b"],
            **fields,
        )

    measured = pb.ModelMetrics(model_version=2, metrics={"accuracy": 0.75})
    history = history_of([closed(1), closed(2, loss_after=0.5, late_updates=1, evaluation=measured)])
    first, second = history.rounds
    assert (first.clock, first.time, first.updates) == (1.0, 0.5, 2)
    assert (second.clock, second.time, second.staleness) == (2.0, 1.0, 0.5)
    assert math.isnan(first.loss_after) and second.loss_after == 0.5
    assert history.metrics() == {"accuracy": 0.75}


def test_no_rounds_are_an_empty_history() -> None:
    assert history_of([]).rounds == []
