"""The parameter layout: which tensor lies where in the flat state vector.

A model travels as one flat vector: its trainable parameters first (size `d`, what the
circuit integrates), then its floating-point buffers such as BatchNorm's running statistics,
which are averaged beside it. Both sides compare `digest` before they exchange a byte of it.
"""

import hashlib
import json
import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from fedecado.common.errors import LayoutError

Vector = npt.NDArray[np.floating[Any]]
DType = Literal["float32", "float64"]
Kind = Literal["parameter", "buffer"]

NAME_CHARACTERS, SIDES = 1000, 32


@dataclass(frozen=True, slots=True)
class Entry:
    """One named tensor of the model."""

    name: str
    shape: tuple[int, ...]
    kind: Kind = "parameter"

    def __post_init__(self) -> None:
        if not self.name:
            raise LayoutError("a tensor has an empty name")
        if self.kind not in get_args(Kind):
            raise LayoutError(f"{self.name}: kind is {self.kind!r}; it must be 'parameter' or 'buffer'")
        if any(n < 0 for n in self.shape):
            raise LayoutError(f"{self.name}: shape {self.shape} has a negative side")
        # Before sizes are formed: products of numbers with thousands of digits take for ever.
        if len(self.name) > NAME_CHARACTERS or len(self.shape) > SIDES or any(n >> 48 for n in self.shape):
            raise LayoutError(
                f"{self.name[:80]}: names have up to {NAME_CHARACTERS} characters, tensors up to {SIDES} "
                "sides of less than 2^48"
            )

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The ordered tensors of a state vector; parameters stand before buffers."""

    entries: tuple[Entry, ...]
    dtype: DType = "float32"

    def __post_init__(self) -> None:
        names = [entry.name for entry in self.entries]
        if len(set(names)) < len(names):
            twice = sorted(name for name, times in Counter(names).items() if times > 1)
            raise LayoutError(f"tensor names appear twice: {', '.join(twice[:10])}")
        if self.dtype not in get_args(DType):
            raise LayoutError(f"dtype is {self.dtype!r}; it must be 'float32' or 'float64'")
        kinds = [entry.kind for entry in self.entries]
        if kinds != sorted(kinds, key=("parameter", "buffer").index):
            raise LayoutError("parameters must come before buffers")
        if self.parameters == 0:
            raise LayoutError("the model has no trainable parameters")

    @classmethod
    def flat(cls, size: int, dtype: DType = "float32") -> Self:
        """The layout of a bare vector, for models that are one."""
        return cls((Entry("x", (size,)),), dtype)

    @cached_property
    def parameters(self) -> int:
        """How many numbers the circuit integrates (`d`)."""
        return sum(entry.size for entry in self.entries if entry.kind == "parameter")

    @cached_property
    def size(self) -> int:
        """Length of the whole state vector, buffers included."""
        return sum(entry.size for entry in self.entries)

    @cached_property
    def nbytes(self) -> int:
        return self.size * np.dtype(self.dtype).itemsize

    @cached_property
    def digest(self) -> str:
        """Names, shapes, kinds, order and dtype as one hexadecimal SHA-256."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Canonical text: equal layouts give equal bytes."""
        entries = [[entry.name, list(entry.shape), entry.kind] for entry in self.entries]
        return json.dumps({"dtype": self.dtype, "entries": entries}, separators=(",", ":"), ensure_ascii=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        try:
            raw = json.loads(text)
            entries = tuple(
                Entry(str(name), tuple(int(n) for n in shape), kind) for name, shape, kind in raw["entries"]
            )
            return cls(entries, raw["dtype"])
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise LayoutError(f"not a parameter layout: {error}") from error

    @cached_property
    def _kind(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of a state vector."""
        return (self.size,), np.dtype(self.dtype)

    def check(self, vector: Vector, what: str = "vector") -> None:
        """Raise unless `vector` has this layout's length and dtype."""
        if (vector.shape, vector.dtype) == self._kind:
            return
        if vector.shape != (self.size,):
            raise LayoutError(
                f"{what} has shape {vector.shape}, but the layout {self.digest[:12]} needs ({self.size},); "
                "all peers must build the same model"
            )
        if vector.dtype != np.dtype(self.dtype):
            raise LayoutError(f"{what} is {vector.dtype}, but the layout needs {self.dtype}")

    def unpack(self, vector: Vector) -> dict[str, Vector]:
        """Named tensors as views into `vector`."""
        self.check(vector)
        tensors, at = {}, 0
        for entry in self.entries:
            tensors[entry.name] = vector[at : at + entry.size].reshape(entry.shape)
            at += entry.size
        return tensors
