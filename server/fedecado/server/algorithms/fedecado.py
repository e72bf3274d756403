"""FedECADO: the centre integrates the circuit over the round's common window."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from fedecado.common.layout import Vector
from fedecado.common.records import record
from fedecado.server.algorithms.base import Aggregated, Assignment, Moved, Plain, Report
from fedecado.server.algorithms.gather import Gather
from fedecado.server.algorithms.vectors import RESPONSE, ClientVectors, Lengths
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.circuit import Circuit, Floats, Memory, Moves, Timescale
from fedecado.server.numerics.leap import Straight
from fedecado.server.numerics.options import Options
from fedecado.server.numerics.reduced import Reduced
from fedecado.server.numerics.renewal import Renewal, renewal, trust
from fedecado.server.numerics.robust import Pulls
from fedecado.server.numerics.short import Before, Figures, ShortRounds, Visit
from fedecado.server.numerics.steps import Steps
from fedecado.server.numerics.stretch import adapted, answered
from fedecado.server.numerics.workspace import Workspace


@record
class FedEcadoState:
    """Central state, all flows and their sum F (float64), simulated time, step level m, parts of T.

    `visits` is how many windows an enrolled client has computed so far, on average; `doubt` is how much noise
    there is in what flows say.
    """

    central: Vector
    flows: ClientVectors
    F: Floats
    level: int = 0
    pace: float = 1.0
    window: float = 0.0
    visits: float = 0.0
    doubt: float = 0.0
    version: int = 0
    time: float = 0.0


@record
class _Window:
    """What a round's window came to, however it was computed."""

    central: Vector
    figures: Figures
    steps: Steps
    memory: Memory
    factors: tuple[int, int]
    """How many were there already, and how many not."""
    moved: list[float]
    """Squared length of every displacement,"""
    J: list[float]
    """and of every J_i."""
    flows: Callable[[Renewal], tuple[list[Vector], Floats, list[float]]]
    """The new flows, F after that, and the flows' squared lengths."""
    straight: Straight | None = None
    """What flows move by, where clients can repeat that."""


class FedEcado(Plain):
    """The circuit; `options` are the knobs of its central solve."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self._solver = Reduced(self.options)
        self._short = ShortRounds(self.options)
        self._workspace = Workspace()
        self._lengths = Lengths()

    def init(self, central: Vector, vectors: ClientVectors) -> FedEcadoState:
        return FedEcadoState(central, vectors, np.zeros(len(central)))

    def assignment(self, state: FedEcadoState, client: str, weight: float) -> Assignment:
        return Assignment(kept=state.flows.get(client), weight=weight, after=state.doubt)

    def gather(self, state: FedEcadoState, capacity: int = 0) -> Gather:
        size, dtype = len(state.central), state.central.dtype
        return Gather(
            state.central,
            state.version,
            basis=partial(Basis, size, dtype, capacity=capacity, gram=True, workspace=self._workspace),
            flows=state.flows,
            lengths=self._lengths,
            total=state.F if self.options.absent == "held" else None,
        )

    def aggregate(self, state: FedEcadoState, gathered: Gather, enrolled: int) -> Aggregated[FedEcadoState]:
        ended = self._at_once(state, gathered, enrolled) or self._solved(state, gathered, enrolled)
        figures, steps, (hits, misses) = ended.figures, ended.steps, ended.factors
        moved: dict[str, Moved] = {}
        report = Report(
            updates=len(gathered),
            time=figures.T,
            rate=figures.rate,
            details={
                "inductance": figures.L,
                "capacitance": figures.C,
                "stretch": figures.T / figures.window,
                "agreement": figures.agreement,
                "reach": figures.reach,
                "trust": trust(state.doubt),
                "steps": steps.accepted,
                "rejected_steps": steps.rejected,
                "floored_steps": steps.floored,
                "shortest_step": steps.shortest,
                "step_level": steps.level,
                "truncation_error": figures.error,
                "lu_hits": hits,
                "lu_misses": misses,
                "central_change": figures.change,
            },
        )

        def finish() -> FedEcadoState:
            flows, active = state.flows, gathered.clients
            rates = [square / (t * t) for square, t in zip(ended.moved, gathered.times(), strict=True)]
            renewed = renewal(ended.memory, state.doubt, ended.J, gathered.flow_squares(), rates)
            after, F, squares = ended.flows(renewed)
            for client, flow, square in zip(active, after, squares, strict=True):
                flows.put(client, flow)
                self._lengths.note(flows, client, square)
            strengths = [math.sqrt(square / len(F)) for square in squares]
            report.flows.update(zip(active, strengths, strict=True))
            report.details.update(flow_median=_median(strengths), flow_max=max(strengths))
            if (straight := ended.straight) is not None:
                toward, along = (renewed.added * np.array(by) for by in (straight.toward, straight.along))
                moved.update(zip(active, map(Moved, toward.tolist(), along.tolist()), strict=True))
            return FedEcadoState(
                ended.central,
                flows,
                F,
                level=steps.level,
                pace=figures.pace,
                window=figures.window,
                visits=state.visits + len(gathered) / enrolled,
                doubt=renewed.doubt,
                version=state.version + 1,
                time=state.time + figures.T,
            )

        return Aggregated(ended.central, report, finish, moved)

    def _at_once(self, state: FedEcadoState, gathered: Gather, enrolled: int) -> _Window | None:
        """In one call, flows included, if that can be: nobody is late or was guarded against."""
        updates, a, size = gathered.clients.values(), len(gathered), len(state.central)
        if state.level or not gathered.untouched or not self._short.takes(a, size):
            return None
        if any(update.version != state.version for update in updates):
            return None
        flows, squares = gathered.flows(), gathered.flow_squares()
        visits = [
            Visit(update.end, flow, square, update.time, update.curvature, update.weight)
            for update, flow, square in zip(updates, flows, squares, strict=True)
        ]
        before = Before(state.central, state.F, _alone(state, gathered), enrolled, state.pace, state.window)
        short = self._short.end(before, visits)
        if short is None:
            return None
        return _Window(
            central=short.central,
            figures=short.figures,
            steps=Steps(1, 0, 0, 0, short.figures.T, short.figures.error),
            memory=Memory(self.options.memory * (1.0 - a / enrolled)),
            factors=(0, 1),
            moved=short.moved,
            J=[norm * norm * size for norm in short.J],
            # Who is not late takes on all of its J_i.
            flows=lambda _: (short.flows, short.F, short.squares),
        )

    def _solved(self, state: FedEcadoState, gathered: Gather, enrolled: int) -> _Window:
        """Any round: as many steps as it takes, on vectors of any length."""
        basis, (hits, misses) = gathered.basis, self._solver.reuse
        if basis.total_slot is None:  # who is active, and so the sum of their flows, is known only now
            basis.set_total(_sum_of_flows(state, gathered))
        versions, lags = gathered.versions, gathered.staleness()
        answer, pace = None, 1.0  # also where a stored run went on with another horizon
        if self.options.horizon == "adaptive":
            answer = answered(basis, versions)
            pace = adapted(state.pace, answer)
        moved = basis.squares()
        circuit = Circuit.build(
            gathered.times(),
            gathered.curvatures(),
            gathered.weights(),
            enrolled,
            self.options,
            timescale=Timescale(pace, state.window, state.visits, sum(lags) / max(1, len(lags))),
            moves=Moves([math.sqrt(square) for square in moved], len(state.central)),
        )
        solution = self._solver.solve(basis, versions, circuit, state.level)
        solution.require_room(gathered.flow_squares())
        central, (hits_after, misses_after) = solution.central(state.central), self._solver.reuse
        published = solution.published(state.central, central)
        ended = solution if published is None else published

        def flows(renewed: Renewal) -> tuple[list[Vector], Floats, list[float]]:
            squares: list[float] = []
            alone = _alone(state, gathered)
            after, F = ended.flows(gathered.flows(), state.F, squares, renewal=renewed, alone=alone)
            basis.release()
            return after, F, squares

        return _Window(
            central=central,
            figures=Figures(
                *(circuit.T, circuit.window, circuit.pace, circuit.L, circuit.C, max(circuit.rho.tolist())),
                *(0.0 if answer is None else answer.agreement, solution.change, solution.rate),
                solution.steps.error,
            ),
            steps=solution.steps,
            memory=circuit.memory,
            factors=(hits_after - hits, misses_after - misses),
            moved=moved,
            J=solution.J_squares,
            flows=flows,
            straight=None if published is None else published.straight,
        )

    def forget(self, state: FedEcadoState, client: str) -> FedEcadoState:
        flow = state.flows.get(client)
        if flow is None:
            return state
        state.flows.drop(client)
        self._lengths.drop(client)
        return replace(state, F=state.F - flow)

    def pulls(self, gathered: Gather) -> Pulls:
        """d_i / T_i - I_i, for an honest client -w_i grad f_i: a displacement less its own flow's part."""
        return Pulls(1 / np.asarray(gathered.times()), gathered.flows())


def _median(values: list[float]) -> float:
    """As numpy's, which takes longer than the rest of a small round's report."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _alone(state: FedEcadoState, gathered: Gather) -> bool:
    """Whether only the round's clients have flows."""
    names, active = state.flows.clients(), gathered.clients
    return all(name in active or name.startswith(RESPONSE) for name in names)


def _sum_of_flows(state: FedEcadoState, gathered: Gather) -> Floats:
    """The sum of the active clients' flows, for the circuit without the absent ones."""
    total = np.zeros_like(state.F)
    for client in gathered.clients:
        flow = state.flows.get(client)
        if flow is not None:
            total += flow
    return total
