"""What a spread of coefficients comes to, block by block of the rows' columns."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from fedecado.common.layout import Vector
from fedecado.server.numerics.native import Packed
from fedecado.server.numerics.spread import Coefficients, Own, Spread


def packed(spread: Coefficients) -> Packed:
    """The clients' combinations in float32, for the compiled pass.

    What they share is taken apart as soon as that is less work: there are no calls to be spared.
    """
    if not isinstance(spread, Spread) or 2 * len(spread.terms) >= spread.shared.shape[1]:
        return Packed(spread.dense().astype(np.float32))
    own, terms = spread.own, spread.terms.astype(np.float32)
    clients, late = len(own.moves), own.late
    shares, slots = np.zeros((clients, 2), np.float32), np.full((clients, 2), -1, np.intp)
    shares[:, 0], slots[:, 0] = terms[1], own.moves
    shares[late, 1], slots[late, 1] = terms[0, late], own.offsets
    return Packed(np.ascontiguousarray(terms[2:].T), spread.shared.astype(np.float32), shares, slots)


class Changes:
    """The clients' combinations, in the rows' dtype."""

    def __init__(self, spread: Coefficients, dtype: npt.DTypeLike) -> None:
        self._own: tuple[Own, Vector] | None = None
        if isinstance(spread, Spread) and spread.few:
            self._own, factors = (spread.own, spread.terms.astype(dtype)), spread.shared
        else:
            factors = spread.dense()
        self._factors = factors.astype(dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the matrix that the rows are multiplied with."""
        return self._factors.shape

    @property
    def room(self) -> int:
        """Rows of memory that `on` wants to be given."""
        return len(self._factors) + (0 if self._own is None else 2)

    def on(self, rows: Vector, narrow: int, room: Vector) -> Iterable[Vector]:
        """The clients' combinations in turn; each may be gone when the next is asked for."""
        width = rows.shape[1]
        products = room[: len(self._factors), :width]
        even = width - width % narrow if width > narrow else 0
        if even:
            pieces = _cut(products[:, :even], narrow)
            np.matmul(self._factors, _cut(rows[:, :even], narrow), out=pieces)
        if even < width:
            np.matmul(self._factors, rows[:, even:], out=products[:, even:])
        if self._own is None:
            return products
        return _apart(*self._own, rows, products, room[len(products) :, :width])


def _cut(rows: Vector, narrow: int) -> Vector:
    """All columns, so many at a time, for one call of numpy."""
    return rows.reshape(len(rows), -1, narrow).swapaxes(0, 1)


def _apart(own: Own, terms: Vector, rows: Vector, products: Vector, room: Vector) -> Iterator[Vector]:
    """What clients share, taken apart, and each one's own."""
    by, one = room
    starts, moves, shares = terms[0], terms[1], np.ascontiguousarray(terms[2:].T)
    offsets = dict(zip(own.late.tolist(), own.offsets.tolist(), strict=True))
    for i, slot in enumerate(own.moves.tolist()):
        if len(products) == 1:
            np.multiply(products[0], shares[i, 0], out=by)
        else:
            np.dot(shares[i], products, out=by)
        by += np.multiply(rows[slot], moves[i], out=one)
        if i in offsets:
            by += np.multiply(rows[offsets[i]], starts[i], out=one)
        yield by
