"""The heart: on clients that disagree, FedECADO reaches the exact weighted optimum and averaging does not."""

import math
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import pytest

from fedecado.common.names import Format
from fedecado.server.algorithms import AlgorithmName, MemoryVectors, Options, make_algorithm
from fedecado.server.federation import Federation
from fedecado.server.rounds import Engine, Rules
from fedecado.simulator import RoundRecord, Simulation, draw_fleet
from fedecado.simulator.quadratics import Quadratics
from fedecado.simulator.uplink import Uplink

N = 20


class Near(Exception):  # noqa: N818 - an outcome, not an error
    """The optimum is as near as was asked for."""


class Run:
    """20 quadratic clients in 10 dimensions; rates U[.001, .01], 5 to 30 full-gradient steps."""

    def __init__(
        self,
        algorithm: AlgorithmName,
        active: int,
        seed: int,
        *,
        rounds: int = 1500,
        enough: float = 0.0,
        mode: Literal["rounds", "stream"] = "rounds",
        upload: tuple[Format, bool] = ("full", True),
        **knobs: Any,
    ) -> None:
        self.quadratics, self.vectors = Quadratics(N, seed=seed), MemoryVectors()
        spread = 1.0 if mode == "stream" else 0.0
        fleet = draw_fleet(N, (0.001, 0.01), (5, 30), seed=seed, speed_spread=spread)
        engine = Engine(Rules(active=active, max_rounds=rounds, seed=seed, mode=mode, min_clients=N))
        self.federation = Federation(
            engine,
            make_algorithm(algorithm, **knobs),
            self.quadratics.layout,
            self.quadratics.initial(),
            self.vectors,
        )
        self.nearest = math.inf

        def watch(record: RoundRecord) -> None:
            self.nearest = min(self.nearest, record.metrics.get("distance", math.inf))
            if self.nearest < enough:
                raise Near

        simulation = Simulation(self.federation, self.quadratics, fleet, evaluate_every=10, watch=watch)
        format, feedback = upload
        simulation.uplink = Uplink(format, self.quadratics.layout, feedback=feedback)
        with suppress(Near):
            simulation.run()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("active", [2, 4, 10, 20])
def test_fedecado_reaches_the_exact_weighted_optimum(active: int, seed: int) -> None:
    assert Run("fedecado", active, seed, enough=1e-12).nearest < 1e-12


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("active", [4, 20])
@pytest.mark.parametrize(("format", "near"), [("float16", 1e-6), ("bfloat16", 1e-12), ("int8", 1e-12)])
def test_the_optimum_stays_the_same_in_compact_formats(
    format: Format, near: float, active: int, feedback: bool
) -> None:
    """Displacements vanish there, and rounding errors with them; but float16's stop at its least number."""
    run = Run("fedecado", active, seed=0, enough=near, upload=(format, feedback))
    assert run.nearest < near


def test_feedback_brings_float16_nearer() -> None:
    near, far = (
        Run("fedecado", N, 0, rounds=250, upload=("float16", kept)).nearest for kept in (True, False)
    )
    assert near < far / 2


@pytest.mark.parametrize("active", [2, 4, 10, 20])
@pytest.mark.parametrize("algorithm", ["fedavg", "fednova"])
def test_averaging_never_comes_close(algorithm: AlgorithmName, active: int) -> None:
    assert Run(algorithm, active, seed=0, rounds=400).nearest > 0.1


@pytest.mark.parametrize("active", [4, 20])
@pytest.mark.parametrize(("algorithm", "knobs"), [("scaffold", {}), ("feddyn", {"mu": 30.0})])
def test_corrected_baselines_reach_the_weighted_optimum_too(
    algorithm: AlgorithmName, knobs: dict[str, Any], active: int
) -> None:
    """FedDyn needs a mu well above the curvature of the clients, who stop long before their minimum."""
    assert Run(algorithm, active, seed=0, rounds=600, enough=1e-10, **knobs).nearest < 1e-10


def test_fedecado_reaches_the_optimum_from_a_stream_of_old_starts() -> None:
    """Clients are asked again as soon as they report, so most updates start from older versions."""
    assert Run("fedecado", 10, seed=0, enough=1e-12, mode="stream").nearest < 1e-12


def test_leaving_absent_clients_out_of_the_balance_is_biased() -> None:
    """Holding their last flows is what makes partial participation exact."""
    biased = Run("fedecado", 4, seed=0, rounds=400, solver=Options(absent="ignored"))
    assert biased.nearest > 0.1


@pytest.mark.parametrize("active", [10, 20])
def test_at_rest_every_flow_is_its_client_s_weighted_gradient_and_they_cancel(active: int) -> None:
    run = Run("fedecado", active, seed=1, rounds=400, enough=2e-14)
    q, x_c = run.quadratics, run.federation.central
    weights = np.asarray(q.samples) / np.mean(q.samples)
    kept = [run.vectors.get(f"client-{i:02d}") for i in range(N)]
    flows = np.stack([flow for flow in kept if flow is not None])
    assert len(flows) == N
    gradients = np.stack([weights[i] * q.gradient(i, x_c) for i in range(N)])
    scale = np.abs(gradients).max()
    np.testing.assert_allclose(flows, gradients, rtol=0, atol=1e-11 * scale)
    np.testing.assert_allclose(flows.sum(0), 0, rtol=0, atol=1e-12 * scale)


def test_the_optimum_is_where_the_weighted_gradients_cancel() -> None:
    q = Quadratics(N, seed=4)
    total = sum(q.samples[i] * q.gradient(i, q.optimum) for i in range(N))
    assert np.abs(total).max() < 1e-10 * max(q.samples) * 15
    assert q.evaluate(q.optimum)["distance"] == 0.0
    assert q.evaluate(q.initial())["distance"] == 1.0


def test_a_thousand_clients_work() -> None:
    q = Quadratics(1000, seed=0)
    fleet = draw_fleet(1000, (0.001, 0.01), (5, 30), seed=0)
    engine = Engine(Rules(active=50, max_rounds=20, min_clients=1000))
    federation = Federation(engine, make_algorithm("fedecado"), q.layout, q.initial())
    history = Simulation(federation, q, fleet, evaluate_every=20).run()
    assert len(history.rounds) == 20
    assert all(record.updates == 50 for record in history.rounds)
    assert all(math.isfinite(record.rate) for record in history.rounds)
    assert history.metrics()["distance"] < 0.8
