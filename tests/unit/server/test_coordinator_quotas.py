"""Quotas: rates cost time, memory and streams are given back, and what is refused says when to return."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.common.errors import QuotaError
from fedecado.common.wire import BulkChunk
from fedecado.server.coordinator.quotas import SMALL_BYTES, Bucket, Limits, Meter, Quotas
from fedecado.server.coordinator.refusals import refused_session
from fedecado.v1 import session_pb2 as pb


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.floats(0.1, 50), min_size=1, max_size=60), st.floats(1, 100))
def test_whoever_waits_as_told_stays_below_rate_and_burst(amounts: list[float], rate: float) -> None:
    clock = Clock()
    bucket = Bucket(rate, 2 * rate, clock)
    for amount in amounts:
        clock.now += bucket.take(amount)
    assert sum(amounts) <= (2 * rate + rate * clock.now) * (1 + 1e-9) + 1e-6


def test_large_chunks_cost_bytes_and_small_messages_cost_messages() -> None:
    clock = Clock()
    meter = Meter(Limits(messages=1.0), None, clock)
    big, small = BulkChunk(0, memoryview(bytes(SMALL_BYTES))), BulkChunk(0, memoryview(b"x"))
    assert not any(meter.pause(big) for _ in range(1000))
    assert [meter.pause(small) > 0 for _ in range(11)] == [False] * 10 + [True]
    assert meter.pause(pb.WorkerMessage(progress=pb.Progress())) > 1


def test_what_was_asked_for_does_not_count() -> None:
    meter = Meter(Limits(messages=1.0), None, Clock())
    message = pb.WorkerMessage(update=pb.Update())
    for _ in range(1000):
        meter.asked_for()
        assert not any(meter.pause(message) for _ in range(3))


def test_an_enclosed_vector_earns_no_more_than_its_one_message() -> None:
    meter = Meter(Limits(messages=1.0), None, Clock())
    message = pb.WorkerMessage(update=pb.Update())
    for _ in range(1000):
        meter.asked_for(enclosed=True)
        assert not meter.pause(message)
    meter.asked_for(enclosed=True)
    assert [meter.pause(message) > 0 for _ in range(11)] == [False] * 10 + [True]


def test_all_sessions_share_one_total_rate() -> None:
    clock = Clock()
    quotas = Quotas(Limits(total_rate=1e6), clock)
    chunk = BulkChunk(0, memoryview(bytes(1 << 20)))
    with quotas.stream() as one, quotas.stream() as two:
        assert one.pause(chunk) == 0
        assert two.pause(chunk) > 0


def test_streams_beyond_the_quota_are_told_to_come_back_and_a_place_is_given_back() -> None:
    quotas = Quotas(Limits(sessions=1))
    with quotas.stream():
        with pytest.raises(QuotaError) as refused, quotas.stream():
            pass
        answer = refused_session(refused.value)
        assert (answer.reason, answer.retry) == (pb.Refused.REASON_FULL, True)
        assert answer.retry_after_seconds > 0
    with quotas.stream():
        pass


def test_memory_is_bounded_but_one_vector_always_fits() -> None:
    quotas = Quotas(Limits(memory=1 << 20))
    quotas.reserve(1 << 21)
    with pytest.raises(QuotaError, match=r"limits\.memory"):
        quotas.reserve(1)
    quotas.release(1 << 21)
    quotas.reserve(1 << 19)
    quotas.reserve(1 << 19)


def test_a_model_that_could_never_be_received_is_refused_for_good() -> None:
    with pytest.raises(QuotaError) as refused:
        Quotas(Limits(memory=1 << 20)).require_sane(1 << 40)
    assert not refused_session(refused.value).retry


def test_a_worker_that_connects_again_and_again_has_to_wait_and_strangers_are_counted() -> None:
    clock = Clock()
    quotas = Quotas(Limits(workers=1), clock)
    members: Any = SimpleNamespace(by_id={"w": SimpleNamespace(visits=None)})
    for _ in range(30):
        quotas.visit("w", members)
    with pytest.raises(QuotaError, match="too often"):
        quotas.visit("w", members)
    clock.now += 10
    quotas.visit("w", members)
    with pytest.raises(QuotaError, match=r"limits\.workers"):
        quotas.visit("stranger", members)
