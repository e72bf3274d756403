"""FedECADO: the centre integrates the circuit over the round's common window."""

import math
from dataclasses import replace

import numpy as np

from fedecado.common.layout import Vector
from fedecado.common.records import record
from fedecado.server.algorithms.base import (
    RESPONSE,
    Aggregated,
    Assignment,
    ClientVectors,
    Gather,
    Lengths,
    Plain,
    Report,
)
from fedecado.server.numerics.basis import Basis
from fedecado.server.numerics.circuit import Circuit, Floats, Moves, Timescale
from fedecado.server.numerics.options import Options
from fedecado.server.numerics.reduced import Reduced
from fedecado.server.numerics.renewal import renewal, trust
from fedecado.server.numerics.robust import Pulls
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


class FedEcado(Plain):
    """The circuit; `options` are the knobs of its central solve."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self._solver = Reduced(self.options)
        self._workspace = Workspace()
        self._lengths = Lengths()

    def init(self, central: Vector, vectors: ClientVectors) -> FedEcadoState:
        return FedEcadoState(central, vectors, np.zeros(len(central)))

    def assignment(self, state: FedEcadoState, client: str, weight: float) -> Assignment:
        return Assignment(kept=state.flows.get(client), weight=weight, after=state.doubt)

    def gather(self, state: FedEcadoState, capacity: int = 0) -> Gather:
        basis = Basis(
            len(state.central),
            state.central.dtype,
            capacity=capacity,
            gram=True,
            workspace=self._workspace,
        )
        return Gather(
            state.central,
            state.version,
            basis=basis,
            flows=state.flows,
            lengths=self._lengths,
            total=state.F if self.options.absent == "held" else None,
        )

    def aggregate(self, state: FedEcadoState, gathered: Gather, enrolled: int) -> Aggregated[FedEcadoState]:
        basis, (hits, misses) = gathered.basis, self._solver.reuse
        if basis.total_slot is None:  # who is active, and so the sum of their flows, is known only now
            basis.set_total(_sum_of_flows(state, gathered))
        versions, lags = gathered.versions, gathered.staleness()
        answer, pace = None, 1.0  # also where a stored run went on with another horizon
        if self.options.horizon == "adaptive":
            answer = answered(basis, versions)
            pace = adapted(state.pace, answer)
        times, moved = gathered.times(), basis.squares()
        circuit = Circuit.build(
            times,
            gathered.curvatures(),
            gathered.weights(),
            enrolled,
            self.options,
            timescale=Timescale(pace, state.window, state.visits, sum(lags) / max(1, len(lags))),
            moves=Moves([math.sqrt(square) for square in moved], len(state.central)),
        )
        solution = self._solver.solve(basis, versions, circuit, state.level)
        flow_squares = gathered.flow_squares()
        solution.require_room(flow_squares)
        central = solution.central(state.central)
        steps, (hits_after, misses_after) = solution.steps, self._solver.reuse
        report = Report(
            updates=len(gathered),
            time=circuit.T,
            rate=solution.rate,
            details={
                "inductance": circuit.L,
                "capacitance": circuit.C,
                "stretch": circuit.T / circuit.window,
                "agreement": 0.0 if answer is None else answer.agreement,
                "reach": max(circuit.rho.tolist()),
                "trust": trust(state.doubt),
                "steps": steps.accepted,
                "rejected_steps": steps.rejected,
                "floored_steps": steps.floored,
                "shortest_step": steps.shortest,
                "step_level": steps.level,
                "truncation_error": steps.error,
                "lu_hits": hits_after - hits,
                "lu_misses": misses_after - misses,
                "central_change": solution.change,
            },
        )

        def finish() -> FedEcadoState:
            squares: list[float] = []
            flows, active = state.flows, gathered.clients
            alone = all(name in active or name.startswith(RESPONSE) for name in flows.clients())
            before = [flows.get(client) for client in active]
            rates = [square / (t * t) for square, t in zip(moved, times, strict=True)]
            renewed = renewal(circuit.memory, state.doubt, solution.J_squares, flow_squares, rates)
            after, F = solution.flows(before, state.F, squares, renewal=renewed, alone=alone)
            for client, flow, square in zip(active, after, squares, strict=True):
                flows.put(client, flow)
                self._lengths.note(flows, client, square)
            strengths = [math.sqrt(square / len(F)) for square in squares]
            report.flows.update(zip(active, strengths, strict=True))
            report.details.update(flow_median=_median(strengths), flow_max=max(strengths))
            basis.release()
            return FedEcadoState(
                central,
                flows,
                F,
                level=steps.level,
                pace=circuit.pace,
                window=circuit.window,
                visits=state.visits + len(gathered) / enrolled,
                doubt=renewed.doubt,
                version=state.version + 1,
                time=state.time + circuit.T,
            )

        return Aggregated(central, report, finish)

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


def _sum_of_flows(state: FedEcadoState, gathered: Gather) -> Floats:
    """The sum of the active clients' flows, for the circuit without the absent ones."""
    total = np.zeros_like(state.F)
    for client in gathered.clients:
        flow = state.flows.get(client)
        if flow is not None:
            total += flow
    return total
