"""Every client's vector and its combination of a basis' rows, and the sum of all vectors, in one pass."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedecado.common.layout import Vector
from fedecado.server.numerics import native
from fedecado.server.numerics.changes import Changes, packed
from fedecado.server.numerics.circuit import Floats
from fedecado.server.numerics.columns import (
    LONG_BLOCK,
    added,
    apart,
    blocks,
    fast_width,
    over_columns,
    squared,
    striped,
)
from fedecado.server.numerics.native import FLOAT64, Advance, in_place
from fedecado.server.numerics.rows import Rows
from fedecado.server.numerics.spread import Coefficients
from fedecado.server.numerics.tally import Tally


class Vectors(NamedTuple):
    """What is advanced, and where to."""

    before: Sequence[Vector | None]
    """One per client; None is zero."""
    after: Sequence[Vector]
    """Where to write what comes after them, which may be the same places."""
    total: Floats | None
    """The sum of these and others' vectors; None if there are no others."""
    moved: Floats
    """Where to write the sum as it is then."""


def advance(rows: Rows, spread: Coefficients, vectors: Vectors) -> list[float]:
    """Write each vector plus its combination; their squared lengths, as `squared_length` has them.

    Vectors are taken out of the sum as they were and put in as they are stored.
    """
    compiled, table = native.kernels(), rows.table()
    if compiled and table is not None and _in_place(vectors):
        to = Advance(packed(spread), *vectors)
        return added(striped(rows.size, lambda stripe: compiled.advance(table, to, stripe)))
    return added(_by_blocks(rows, Changes(spread, rows.dtype), vectors))


def _in_place(v: Vectors) -> bool:
    """Whether the compiled pass can be used."""
    for vector, after in zip(v.before, v.after, strict=True):
        if not (in_place(after) and (vector is None or vector is after or in_place(vector))):
            return False
    return in_place(v.moved, FLOAT64) and (v.total is None or in_place(v.total, FLOAT64))


def _by_blocks(rows: Rows, changes: Changes, v: Vectors) -> list[list[float]]:
    """The same with numpy."""
    clients = len(v.after)
    widest, narrow = _widths(rows.size, clients, math.prod(changes.shape))

    def work(stripe: slice) -> list[float]:
        tally = Tally(widest)
        formed, room = rows.room(widest), apart(changes.room, widest, rows.dtype)
        for columns in blocks(stripe, widest):
            block, sums = rows.block(columns, formed), v.moved[columns]
            if v.total is not None:
                tally.add(v.total[columns])
            for i, by in enumerate(changes.on(block, narrow, room)):
                if not tally.room(2):
                    tally.total(sums)
                    tally.add(sums)
                vector, after = v.before[i], v.after[i][columns]
                if vector is None:
                    after[:] = by
                else:
                    before = vector[columns]
                    if v.total is not None:
                        tally.add(before, -1.0)
                    np.add(before, by, out=after)
                tally.add(after)
            tally.total(sums)
        # Not as the blocks come: their width depends on the clients, and with it the last bits.
        return [squared(vector[stripe]) for vector in v.after]

    return over_columns(rows.size, work)


def _widths(size: int, results: int, multiplications: int) -> tuple[int, int]:
    """Columns of a block that is written on to all results, and of the products it is made of.

    The first is half of a `LONG_BLOCK`, which leaves room in the outer cache for a `Tally`.
    """
    long = LONG_BLOCK // 2
    widest = min(size, long, max(4096, 20 * long // results))
    return widest, min(fast_width(multiplications), widest) or widest
