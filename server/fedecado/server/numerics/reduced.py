"""The central solve in reduced coordinates: the same steps on a small coefficient matrix.

With J_i = I_i - I_i_k, what a flow changes by, the circuit reads

    C dx_c/dt = - sum_active J_i - F,    L dJ_i/dt = x_c - Gamma_i - J_i / G_i,    J_i = 0 at first

so the active flows themselves enter neither x_c nor J nor a truncation error; F does. The state is kept
as coefficients over the slots of a `Basis`: a row per J_i and one for x_c - x_c_start, written out (`whole`,
and `leap` where one step is enough) or, with many clients, as a few numbers for each (`shared`). A step is
one small solve on these, whatever d is, and the passes over long vectors do not become more with the number
of steps. `Solution.central` is one weighted sum of rows, ready before `Solution.flows` is asked for.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from fedecado.common.errors import NonFiniteError
from fedecado.common.layout import Vector
from fedecado.common.records import record
from fedecado.server.numerics import arrow, shared, whole
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.circuit import Circuit, Floats
from fedecado.server.numerics.columns import hold_blas
from fedecado.server.numerics.finite import largest
from fedecado.server.numerics.leap import Straight, leap, pivot
from fedecado.server.numerics.options import Options
from fedecado.server.numerics.renewal import WHOLE, Renewal
from fedecado.server.numerics.rows import Row
from fedecado.server.numerics.spread import Coefficients, Own, Spread, Written
from fedecado.server.numerics.steps import Steps, integrate, whole_window


@record
class Solution:
    """The window's end, as coefficients until asked for as vectors."""

    basis: Basis
    x_c: Floats
    """Coefficients of what the centre moves by."""
    J: Coefficients
    """Those of what each active flow moves by."""
    steps: Steps
    F: Floats
    """Coefficients of F at the window's end."""
    C: float
    norms: Sequence[float]
    """RMS of every J_i, of what the centre moves by and of dx_c/dt, at the window's end."""
    straight: Straight | None = None
    """What flows move by, if one step was enough and nobody is late."""

    def central(self, x_c: Vector) -> Vector:
        """The new central state."""
        return self.basis.combine(self.x_c, onto=x_c)

    def published(self, before: Vector, after: Vector) -> "Solution | None":
        """The same with flows that follow the centre as clients are told it, to the last bit; if that can be.

        So each client can repeat what becomes of its own. Rows must not be asked for any more.
        """
        straight = self.straight
        slot = None if straight is None else self.basis.follow(Row("what the centre moves by", after, before))
        if straight is None or slot is None:
            return None
        shared = np.zeros((1, slot + 1))
        shared[0, slot] = 1.0
        terms = np.zeros((3, len(straight.along)))
        terms[1], terms[2] = np.negative(straight.along), straight.toward
        return replace(self, J=Spread(_own(self.basis, [None] * len(straight.along)), terms, shared))

    def flows(
        self,
        before: Sequence[Vector | None],
        F: Floats,
        squares: list[float] | None = None,
        *,
        renewal: Renewal = WHOLE,
        alone: bool = False,
    ) -> tuple[list[Vector], Floats]:
        """The new flow of each active client, and F after that; `alone` if no other client has a flow.

        `renewal` says how much of its J_i each flow takes. `squares` receives their squared lengths.
        """
        by = self.J.times(renewal.added)
        return self.basis.advance(by, before, F, squares, alone=alone)

    @property
    def J_squares(self) -> list[float]:  # noqa: N802 - as in the formulas
        """Squared length of every J_i."""
        return [norm * norm * self.basis.size for norm in self.norms[:-2]]

    @property
    def change(self) -> float:
        """RMS of what the centre moves by."""
        return self.norms[-2]

    @property
    def rate(self) -> float:
        """RMS of dx_c/dt: zero when the circuit is at rest."""
        return self.norms[-1]

    def require_room(self, flow_squares: Iterable[float]) -> None:
        """Raise if a result is too long to be squared, and so to take part in a later round.

        `flow_squares` are the squared lengths of the active flows at the window's start.
        """
        basis, root = self.basis, math.sqrt(self.basis.size)
        if basis.sampled:
            with np.errstate(over="ignore", invalid="ignore"):
                lengths = basis.bound(self.J.dense(self.x_c, self.F)).tolist()
        else:
            lengths = [root * norm for norm in self.norms]
            lengths[-1] *= self.C
        for i, square in enumerate(flow_squares):
            lengths[i] += math.sqrt(square)
        most = math.sqrt(largest(basis.dtype))
        if not all(length < most for length in lengths):  # NaN is not
            values = max(lengths, key=lambda length: (math.isnan(length), length)) / root
            raise NonFiniteError(
                f"the central solve left the range of {basis.dtype} (values around {values:.3g}); "
                "the state is unchanged"
            )


class Reduced:
    """Turns a circuit and its basis into a solution; keeps LU factors between rounds."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.factors, self.maps = arrow.FactorCache(arrow.factor), arrow.FactorCache(whole.factor)
        self.pivots = arrow.FactorCache(pivot)
        """Of many clients, of few, and of few that need one step."""

    @property
    def reuse(self) -> tuple[int, int]:
        """How often factors were there already, and how often not."""
        hits = self.factors.hits + self.maps.hits + self.pivots.hits
        return hits, self.factors.misses + self.maps.misses + self.pivots.misses

    def solve(self, basis: Basis, versions: list[int | None], circuit: Circuit, level: int = 0) -> Solution:
        """Integrate over the window; `versions` names the offset a client started from, if any."""
        hold_blas()
        # Whatever overflows is caught, and said in words, by the check of the error and of the room.
        with np.errstate(over="ignore", invalid="ignore"):
            if len(versions) <= whole.MOST:
                return self._few(basis, versions, circuit, level)
            own, norms = _own(basis, versions), partial(basis.norms, rms=self.options.norm == "rms")
            many = shared.March(basis, own, circuit, self.factors, norms)
            state, steps = integrate(many.attempt, many.rest, circuit.T, level, self.options)
            return _solution(basis, circuit, steps, state.x_c, state.J, state.total)

    def _few(self, basis: Basis, versions: list[int | None], circuit: Circuit, level: int) -> Solution:
        """The same for few clients: a leap, where that is enough, or else the steps of `whole`."""
        options, rejected = self.options, 0
        rms, late = options.norm == "rms", len(versions) - versions.count(None)
        if not level and not late and rms and basis.size >= basis.slots:
            end = leap(basis, circuit, self.pivots)
            if (steps := whole_window(end.error, circuit.T, options)) is not None:
                found = basis, end.x_c, Written(end.J), steps, end.F, circuit.C, end.norms, end.straight
                return Solution(*found)
            level = rejected = 1
        own, norms = _own(basis, versions), basis.rms if rms else basis.peak
        march = whole.March(basis, own, circuit, self.maps, norms)
        rows, steps = integrate(march.attempt, march.rest, circuit.T, level, options, rejected)
        return _solution(basis, circuit, steps, *march.ended(rows))


def _solution(
    basis: Basis, c: Circuit, steps: Steps, x_c: Floats, J: Coefficients, total: Floats
) -> Solution:
    after = total.copy()
    after[basis.total_slot] += 1.0
    norms = basis.norms(J, x_c, after / c.C).tolist()
    return Solution(basis, x_c, J, steps, after, c.C, norms)


def _own(basis: Basis, versions: list[int | None]) -> Own:
    """Where the vectors of clients that started from these versions are."""
    late = [i for i, version in enumerate(versions) if version is not None]
    offsets = [basis.offset_slot(version) for version in versions if version is not None]
    return Own(*(np.asarray(part, np.intp) for part in (basis.move_slots, late, offsets)))
