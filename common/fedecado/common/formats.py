"""Updates in fewer bytes: float16, bfloat16, or int8 with a scale per block.

What is written is the displacement x_end - x_start of the trainable parameters: it is far smaller than the
state, and vanishes at rest, and so does what rounding takes from it. The receiver adds it to x_start. Buffers
follow as they are: nothing adds their errors up to zero. Vectors are worked on by pieces that stay in cache.

Rounding is to the nearest, ties to even, so the same numbers give the same bytes everywhere. Sender and
receiver add the same float32 values to the same x_start, so the sender knows the state that the receiver
gets to the last bit, and `encode` tells what is missing from it. Nothing here does I/O.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from fedecado.common.errors import NonFiniteError
from fedecado.common.layout import Layout, Vector
from fedecado.common.names import Compact

Bytes = npt.NDArray[np.uint8]
Singles = npt.NDArray[np.float32]

BLOCK: Final = 1024
"""Numbers of an int8 block, part of the protocol. Of a CNN's displacements rounding took 1.2 % with 0.4 % of
bytes for scales; with blocks of 256 it is 0.9 and 1.6 %, with 4096 it is 1.6 and 0.1 %."""
PIECE: Final = 64 * BLOCK
"""Numbers that are worked on at a time."""

_SCALE: Final = 4
_TINY: Final = float(np.finfo(np.float32).tiny)
_HALF_NORMAL: Final = np.float32(2.0**-14)


@dataclass(frozen=True, slots=True)
class _Codec:
    """A number format: so many numbers take so many bytes; the last unit may be shorter."""

    name: Compact
    largest: float
    numbers: int = 1
    nbytes: int = 2

    def size(self, count: int) -> int:
        """Bytes that so many numbers take."""
        whole, rest = divmod(count, self.numbers)
        return whole * self.nbytes + (self.nbytes - self.numbers + rest if rest else 0)

    def pack(self, values: Singles, into: Bytes) -> None:
        match self.name:
            case "float16":
                into.view("<u2")[:] = _to_half(values)
            case "bfloat16":
                bits = values.view(np.uint32)
                into.view("<u2")[:] = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16
            case "int8":
                for numbers, block in _blocks(values, into):
                    _to_int8(numbers, block)

    def unpack(self, data: Bytes, out: Singles) -> None:
        match self.name:
            case "float16":
                np.take(_halves(), data.view("<u2"), out=out, mode="clip")
            case "bfloat16":
                patterns = out.view(np.uint32)
                patterns[:] = data.view("<u2")
                np.left_shift(patterns, 16, out=patterns)
            case "int8":
                for numbers, block in _blocks(out, data):
                    scales = block[:, :_SCALE].copy().view("<f4")
                    np.multiply(block[:, _SCALE:].view(np.int8), scales, out=numbers)


_CODECS: Final[dict[str, _Codec]] = {
    "float16": _Codec("float16", 65504.0),
    "bfloat16": _Codec("bfloat16", float(np.array(0x7F7F0000, np.uint32).view(np.float32))),
    "int8": _Codec("int8", float(np.finfo(np.float32).max), BLOCK, _SCALE + BLOCK),
}


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """An update as it travels."""

    format: Compact
    payload: Bytes
    missing: Vector
    """What the receiver's parameters lack of those that were meant."""


def packed_bytes(format: Compact, layout: Layout) -> int:
    """How many bytes an update of this layout takes."""
    buffers = layout.size - layout.parameters
    return _CODECS[format].size(layout.parameters) + buffers * np.dtype(layout.dtype).itemsize


def encode(format: Compact, layout: Layout, start: Vector, end: Vector, owed: Vector | None = None) -> Packed:
    """The way from `start` to `end` and what earlier updates owe; NonFiniteError if it does not fit."""
    layout.check(start, "start state")
    layout.check(end, "end state")
    codec, d = _CODECS[format], layout.parameters
    payload: Bytes = np.empty(packed_bytes(format, layout), np.uint8)
    missing: Vector = np.empty(d, start.dtype)
    rounded: Singles = np.empty(min(d, PIECE), np.float32)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for at in range(0, d, PIECE):
            part = slice(at, min(at + PIECE, d))
            wanted = end[part] - start[part]
            if owed is not None:
                wanted += owed[part]
            values = wanted.astype(np.float32, copy=False)
            _check_range(codec, values, at)
            data = payload[codec.size(at) : codec.size(part.stop)]
            codec.pack(values, data)
            seen = rounded[: len(values)]
            codec.unpack(data, seen)
            np.subtract(wanted, (start[part] + seen) - start[part], out=missing[part])
    payload[codec.size(d) :] = end[d:].astype(end.dtype.newbyteorder("<"), copy=False).view(np.uint8)
    return Packed(format, payload, missing)


def decode(packed: Packed, layout: Layout, start: Vector) -> Vector:
    """The state that a packed update leads to."""
    out: Vector = np.empty(layout.size, layout.dtype)
    decoder = Decoder(packed.format, layout, start, out)
    for _ in decoder.feed(packed.payload.data):
        pass  # its numbers are in their place
    decoder.finish()
    return out


@final
class Decoder:
    """Turns the bytes of an update, given in any pieces, into the state that they lead to, in place."""

    def __init__(self, format: Compact, layout: Layout, start: Vector, out: Vector) -> None:
        layout.check(start, "start state")
        layout.check(out, "place for an update")
        self._codec, self._d = _CODECS[format], layout.parameters
        self._start, self._out = start, out
        self._packed = self._codec.size(self._d)
        self._taken = 0
        """Bytes of parameters that are decoded."""
        self._carry = bytearray()
        """The begin of a unit whose end is still to come."""
        self._buffers = 0
        """Bytes of buffers that are here."""
        self._scratch: Singles | None = None if out.dtype == np.float32 else np.empty(PIECE, np.float32)
        self.numbers = 0
        """How many numbers of the state are in their place."""

    def feed(self, data: memoryview) -> Iterator[slice]:
        """Take the next bytes; tells which numbers they complete, piece by piece."""
        raw: Bytes = np.frombuffer(data, np.uint8)
        codec = self._codec
        while raw.size and (left := self._packed - self._taken):
            unit = min(codec.nbytes, left)
            if self._carry or raw.size < unit:
                more = unit - len(self._carry)
                self._carry += raw[:more].data
                raw = raw[more:]
                if len(self._carry) < unit:
                    return
                piece, self._carry = np.frombuffer(self._carry, np.uint8), bytearray()
            else:
                span = min(raw.size, left, PIECE // codec.numbers * codec.nbytes)
                span -= span % codec.nbytes if span < left else 0
                piece, raw = raw[:span], raw[span:]
            yield self._decode(piece)
        if raw.size:
            yield self._copy(raw)

    def finish(self) -> None:
        """All is here: put buffers into the order of this machine."""
        if sys.byteorder == "big":
            self._out[self._d :].byteswap(inplace=True)

    def _decode(self, piece: Bytes) -> slice:
        self._taken += len(piece)
        at, codec = self.numbers, self._codec
        units = -(-len(piece) // codec.nbytes)
        stop = min(at + units * codec.numbers, self._d)  # the last unit may be a short one
        part, out = slice(at, stop), self._out[at:stop]
        values: Any = out if self._scratch is None else self._scratch[: stop - at]
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            codec.unpack(piece, values)
            np.add(values, self._start[part], out=out)
        self.numbers = stop
        return part

    def _copy(self, raw: Bytes) -> slice:
        buffers = self._out[self._d :].view(np.uint8)
        buffers[self._buffers : self._buffers + len(raw)] = raw
        self._buffers += len(raw)
        part = slice(self.numbers, self._d + self._buffers // self._out.itemsize)
        self.numbers = part.stop
        return part


def _blocks(values: Singles, data: Bytes) -> Iterator[tuple[Singles, Bytes]]:
    """Numbers and bytes as rows that are blocks: the whole ones, then the short one."""
    whole = len(values) // BLOCK
    if whole:
        yield (
            values[: whole * BLOCK].reshape(whole, BLOCK),
            data[: whole * (_SCALE + BLOCK)].reshape(whole, _SCALE + BLOCK),
        )
    if len(values) > whole * BLOCK:
        yield values[None, whole * BLOCK :], data[None, whole * (_SCALE + BLOCK) :]


def _to_int8(values: Singles, block: Bytes) -> None:
    scales = np.maximum(values.max(axis=1), -values.min(axis=1)) / np.float32(127)
    scales[scales < _TINY] = 0  # its inverse would be infinite
    block[:, :_SCALE] = scales.astype("<f4").view(np.uint8).reshape(-1, _SCALE)
    inverse = np.divide(1, scales, where=scales > 0, out=np.zeros_like(scales))
    scaled = values * inverse[:, None]
    np.rint(scaled, out=scaled)
    np.copyto(block[:, _SCALE:].view(np.int8), scaled, casting="unsafe")


@cache
def _halves() -> Singles:
    """The value of every bit pattern; a cast takes up to twenty times as long on subnormal ones."""
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def _to_half(values: Singles) -> npt.NDArray[np.uint32]:
    """Bit patterns of float16, by hand: a cast takes a hundred times as long on subnormal ones."""
    bits = values.view(np.uint32)
    sign, size = bits >> 16 & 0x8000, np.abs(values)
    pattern = size.view(np.uint32)
    normal = ((pattern + (0xFFF + (pattern >> 13 & 1))) >> 13) - (112 << 10)
    # The spacing of floats at 1/2 is that of subnormal halves, so the addition rounds as it should.
    subnormal = (size + np.float32(0.5)).view(np.uint32) - np.uint32(0x3F000000)
    halves: npt.NDArray[np.uint32] = np.where(size < _HALF_NORMAL, subnormal, normal) | sign
    return halves


def _check_range(codec: _Codec, values: Singles, first: int) -> None:
    if float(values.max()) <= codec.largest and float(values.min()) >= -codec.largest:
        return
    at = int(np.argmin(np.abs(values) <= codec.largest))
    moved = float(values[at])
    if math.isfinite(moved):
        remedy = (
            f"beyond {codec.name}'s {codec.largest:.6g}; set upload.format to bfloat16, int8 or full, "
            "or lower the learning rate"
        )
    else:
        remedy = "no number; lower the learning rate or clip gradients"
    raise NonFiniteError(f"parameter {first + at} moved by {moved:.6g}, which is {remedy}")
