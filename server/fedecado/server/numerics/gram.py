"""Inner products of the rows of a basis, grown as rows arrive.

They are taken for several new rows at once, so that the others are read once for all of them.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from fedecado.common.layout import Vector
from fedecado.server.numerics.circuit import Floats
from fedecado.server.numerics.columns import BLOCK, blocks, fast_width, hold_blas, over_columns, summed

FEW: Final = 20
"""Up to so many rows their products are taken row by row: BLAS is slow with small results of long sums."""


class Gram:
    """A symmetric matrix in float64; products themselves are formed in the rows' dtype, block by block."""

    def __init__(self, products: Floats | None = None) -> None:
        self._products = np.empty((0, 0)) if products is None else products
        self.rows = len(self._products)
        """How many leading rows are in it."""

    @property
    def products(self) -> Floats:
        return self._products[: self.rows, : self.rows]

    def take(self, products: Floats) -> None:
        """All inner products there are, taken elsewhere."""
        self._products, self.rows = products, len(products)

    def is_due(self, rows: int) -> bool:
        """Whether enough rows wait; not too many, for when a round closes clients wait for the rest."""
        return rows - self.rows >= min(max(4, rows // 8), 32)

    def grow(self, rows: Vector, scale: float, room: int, squares: Sequence[float] = ()) -> None:
        """Take the products of new rows with all up to them; `room` is for how many rows there will be.

        `squares` are those of all rows with themselves, of short ones that are not sampled.
        """
        first, end = self.rows, len(rows)
        if not first and end <= FEW and 0 < rows.shape[1] <= BLOCK:
            self._products, self.rows = _all_products(rows, squares), end
            return
        width = fast_width((end - first) * end) or BLOCK

        def work(stripe: slice) -> Floats:
            products = np.zeros((end - first, end))
            for columns in blocks(stripe, width):
                block = rows[:, columns]
                if end > FEW:
                    products += block[first:] @ block.T
                else:
                    _add_products(products, block, first)
            return products

        products: Floats = scale * summed(over_columns(rows.shape[1], work))
        if end > len(self._products):
            grown = np.empty((max(end, room),) * 2)
            grown[:first, :first] = self.products
            self._products = grown
        own = products[:, first:]
        # BLAS does not promise the same bits for the products of two rows either way round.
        self._products[first:end, first:end] = 0.5 * (own + own.T)
        self._products[first:end, :first] = products[:, :first]
        self._products[:first, first:end] = products[:, :first].T
        self.rows = end


def _all_products(rows: Vector, squares: Sequence[float]) -> Floats:
    """None of them overflows, for it is no larger than its rows' squares, which are finite."""
    hold_blas()
    products = np.empty((len(rows),) * 2)
    products.reshape(-1)[:: len(rows) + 1] = squares
    for i in range(1, len(rows)):
        products[i, :i] = products[:i, i] = rows[:i].dot(rows[i])
    return products


def _add_products(products: Floats, block: Vector, first: int) -> None:
    """Add the products of rows from `first` on with all up to them, and with those after them."""
    for i in range(first, len(block)):
        found = block[: i + 1] @ block[i]
        products[i - first, : i + 1] += found
        products[: i - first, i] += found[first:i]
