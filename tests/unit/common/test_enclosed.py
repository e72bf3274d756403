"""Vectors within their headers: ordinary protobuf, and checked as transfers are."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.common.enclosed import as_transfer, enclose, field, is_understood, opened, with_fields
from fedecado.common.errors import ChecksumError, NonFiniteError, ProtocolError
from fedecado.common.layout import DType, Vector
from fedecado.common.wire import Receiver
from fedecado.v1.session_pb2 import Assign, CoordinatorMessage, ProtocolVersion
from fedecado.v1.transfer_pb2 import Enclosed


def received(enclosed: Enclosed, nbytes: int, dtype: DType) -> tuple[Vector, float]:
    """As the transfer that it stands for."""
    receiver = Receiver(nbytes, dtype, max_bytes=nbytes)
    chunk, trailer = as_transfer(enclosed)
    receiver.add(chunk)
    return receiver.finish(trailer), receiver.square


@pytest.mark.parametrize("take", [opened, received])
@given(st.integers(1, 20_000), st.sampled_from(["float32", "float64"]))
def test_a_vector_comes_out_as_it_went_in(take: Callable[..., Any], size: int, dtype: DType) -> None:
    vector: Vector = np.linspace(-1, 1, size).astype(dtype)
    found, square = take(enclose(vector), vector.nbytes, dtype)
    assert found.dtype == vector.dtype and square == float(np.dot(vector, vector))
    np.testing.assert_array_equal(found, vector)


def test_finite_numbers_whose_square_is_beyond_the_dtype_are_taken() -> None:
    vector = np.full(3, 1e30, np.float32)
    found, square = opened(enclose(vector), vector.nbytes, "float32")
    assert square == math.inf
    np.testing.assert_array_equal(found, vector)


@given(st.integers(1, 20_000), st.integers(0, 1 << 63), st.booleans())
def test_appended_fields_are_read_as_the_headers_own(size: int, task: int, drifts: bool) -> None:
    state: Vector = np.arange(size, dtype=np.float32)
    header, wanted = (Assign(task_id=task, weight=0.5, traceparent="t") for _ in range(2))
    fields = [field(Assign.STATE_FIELD_NUMBER, state)]
    wanted.state.CopyFrom(enclose(state))
    if drifts:
        fields.append(field(Assign.DRIFT_FIELD_NUMBER, -state))
        wanted.drift.CopyFrom(enclose(-state))
    number = CoordinatorMessage.ASSIGN_FIELD_NUMBER
    message = CoordinatorMessage.FromString(with_fields(number, header, *fields))
    assert message == CoordinatorMessage(assign=wanted)
    assert message.SerializeToString(deterministic=True) == with_fields(number, wanted)


@pytest.mark.parametrize("take", [opened, received])
@pytest.mark.parametrize(
    "spoil", [lambda d: d[:-1], lambda d: d + b"\0", lambda d: b"", lambda d: b"\1" + d[1:]]
)
def test_what_is_damaged_is_not_taken(take: Callable[..., Any], spoil: Callable[[bytes], bytes]) -> None:
    vector = np.ones(5, np.float32)
    enclosed = enclose(vector)
    enclosed.data = spoil(enclosed.data)
    with pytest.raises((ProtocolError, ChecksumError)):
        take(enclosed, vector.nbytes, "float32")


@pytest.mark.parametrize("take", [opened, received])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_not_taken(take: Callable[..., Any], value: float) -> None:
    vector = np.full(5, 2e30, np.float32)
    vector[3] = value
    with pytest.raises(NonFiniteError, match="number 3 of the vector"):
        take(enclose(vector), vector.nbytes, "float32")


def test_peers_before_1_2_are_not_sent_any() -> None:
    assert [is_understood(ProtocolVersion(major=1, minor=minor)) for minor in range(4)] == [
        False,
        False,
        True,
        True,
    ]
