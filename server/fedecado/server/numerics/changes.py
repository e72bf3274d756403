"""What a spread of coefficients comes to, block by block of the rows' columns."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from fedecado.common.layout import Vector
from fedecado.server.numerics.columns import blocks
from fedecado.server.numerics.spread import Spread


class Changes:
    """The clients' combinations, in the rows' dtype."""

    def __init__(self, spread: Spread, dtype: npt.DTypeLike) -> None:
        self._own, self._few = spread.own, spread.few
        factors, terms = (spread.shared, spread.terms) if spread.few else (spread.dense(), spread.terms[:0])
        self._factors, self._terms = factors.astype(dtype), terms.astype(dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the matrix that the rows are multiplied with."""
        return self._factors.shape

    @property
    def room(self) -> int:
        """Rows of memory that `on` wants to be given."""
        return len(self._factors) + (2 if self._few else 0)

    def on(self, rows: Vector, narrow: int, room: Vector) -> Iterable[Vector]:
        """The clients' combinations in turn; each may be gone when the next is asked for."""
        width = rows.shape[1]
        products = room[: len(self._factors), :width]
        for part in blocks(slice(0, width), narrow):
            np.matmul(self._factors, rows[:, part], out=products[:, part])
        return self._apart(rows, products, *room[len(products) :, :width]) if self._few else products

    def _apart(self, rows: Vector, products: Vector, by: Vector, one: Vector) -> Iterator[Vector]:
        """What clients share, taken apart, and each one's own."""
        own, (starts, moves, *_) = self._own, self._terms
        shares = np.ascontiguousarray(self._terms[2:].T)
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
