"""Messages as an attacker would make them: any field, any value, bytes cut and changed."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import settings
from hypothesis import strategies as st

from fedecado.common.layout import Entry, Layout
from fedecado.common.wire import encode
from fedecado.v1 import session_pb2 as pb

LAYOUT = Layout((Entry("w", (5,)), Entry("b", (2,), "buffer")))
STATE = np.arange(7, dtype=np.float32)

TOTAL = int(os.environ.get("FEDECADO_FUZZ", "0"))
"""Cases of a whole fuzzing run; 0 is the short one of the ordinary tests."""


def fuzz(share: float, short: int = 40) -> Callable[[Any], Any]:
    """So large a share of a fuzzing run's cases."""
    return settings(max_examples=max(short, round(share * TOTAL)))


_EDGES = [0, 1, 2, 3, 7, 28, 1 << 20, (1 << 31) - 1, 1 << 32, 1 << 53, (1 << 63) - 1, (1 << 64) - 1]
_WORDS = ["", "w1", "w2", "a\x1b[2J\n", "x" * 300, LAYOUT.digest, LAYOUT.to_json(), "{}", "Infinity"]
_KINDS = FieldDescriptor


def _whole(bits: int, signed: bool = False) -> st.SearchStrategy[int]:
    top = (1 << (bits - 1 if signed else bits)) - 1
    edges = [edge for edge in _EDGES if edge <= top]
    return st.sampled_from([*edges, -1] if signed else edges) | st.integers(0, top)


_SCALARS: dict[int, st.SearchStrategy[Any]] = {
    _KINDS.TYPE_DOUBLE: st.sampled_from([0.0, 0.1, 1.0, -1.0, 1e308, float("nan"), float("inf")])
    | st.floats(),
    _KINDS.TYPE_UINT64: _whole(64),
    _KINDS.TYPE_FIXED64: _whole(64),
    _KINDS.TYPE_UINT32: _whole(32),
    _KINDS.TYPE_FIXED32: _whole(32),
    _KINDS.TYPE_ENUM: st.integers(0, 12),
    _KINDS.TYPE_BOOL: st.booleans(),
    _KINDS.TYPE_STRING: st.sampled_from(_WORDS) | st.text(max_size=20),
    _KINDS.TYPE_BYTES: st.sampled_from([STATE.tobytes(), STATE.tobytes()[:8]]) | st.binary(max_size=40),
}


def messages(kind: type[Message]) -> st.SearchStrategy[Any]:
    """Messages of a kind with any of its fields set to anything."""
    fields = {field.name: _field(field) for field in kind.DESCRIPTOR.fields}
    return st.fixed_dictionaries({}, optional=fields).map(lambda given: kind(**given))


def _field(field: Any) -> st.SearchStrategy[Any]:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        return st.dictionaries(st.sampled_from(_WORDS), st.floats(), max_size=3)
    one = messages(inner._concrete_class) if inner is not None else _SCALARS[field.type]
    return st.lists(one, max_size=3) if field.is_repeated else one


def contents(envelope: type[Message]) -> st.SearchStrategy[Any]:
    """An envelope with one content of any kind."""

    def wrapped(name: str, content: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return content.map(lambda made: envelope(**{name: made}))

    return st.one_of([wrapped(field.name, _field(field)) for field in envelope.DESCRIPTOR.fields])


_FRAMES = [
    *encode(STATE),
    *encode(np.full(7, np.nan, np.float32)),
    *encode(STATE[:3]),
    pb.WorkerMessage(bye=pb.WorkerBye()).SerializeToString(),
]


def spoiled(data: bytes, cut: int, at: int, byte: int) -> bytes:
    """Bytes with one of them changed, cut somewhere."""
    if not data:
        return data
    changed = bytearray(data)
    changed[at % len(data)] = byte
    return bytes(changed[: len(changed) - cut % len(changed)])


def frames(envelope: type[Message]) -> st.SearchStrategy[bytes]:
    """Bytes on a stream: whole messages, spoiled ones, and noise."""
    whole = st.sampled_from(_FRAMES) | contents(envelope).map(lambda message: message.SerializeToString())
    damage = st.builds(spoiled, whole, st.integers(0, 30), st.integers(0, 200), st.integers(0, 255))
    return whole | damage | st.binary(max_size=60)
