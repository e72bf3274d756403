"""Federated algorithms behind one interface: FedECADO and the baselines it is compared with."""

from dataclasses import replace
from typing import Any, assert_never

from fedecado.common.errors import ConfigError
from fedecado.common.names import AlgorithmName
from fedecado.server.algorithms.averaging import fedadam, fedavg, fedbuff, fedexp, fednova, fedprox
from fedecado.server.algorithms.base import Aggregated, Algorithm, Assignment, Moved, Report, aggregate_all
from fedecado.server.algorithms.corrected import FedDyn, Scaffold
from fedecado.server.algorithms.fedecado import FedEcado
from fedecado.server.algorithms.gather import Gather
from fedecado.server.algorithms.guarded import Guarded
from fedecado.server.algorithms.updates import Update, check_scalars
from fedecado.server.algorithms.vectors import ClientVectors, MemoryVectors
from fedecado.server.numerics.options import Options
from fedecado.server.numerics.robust import Robust

__all__ = [
    "Aggregated",
    "Algorithm",
    "AlgorithmName",
    "Assignment",
    "ClientVectors",
    "Gather",
    "Guarded",
    "MemoryVectors",
    "Moved",
    "Options",
    "Report",
    "Robust",
    "Update",
    "aggregate_all",
    "check_scalars",
    "make_algorithm",
]


def make_algorithm(
    name: AlgorithmName,
    *,
    solver: Options | None = None,
    mu: float | None = None,
    server_rate: float | None = None,
    robust: Robust | None = None,
) -> Algorithm[Any]:
    """The named algorithm; a knob left at None takes the algorithm's own default."""
    if robust is not None and robust.response_bound is not None and name != "fedecado":
        raise ConfigError(
            f"robust.response_bound watches how clients follow their flows, which {name} does not have; "
            "use robust.norm_bound or robust.trim"
        )
    if robust is not None and robust.response_bound is not None:
        # Flows with a memory change by less than gradients do, whose noise would then drown the answers.
        solver = replace(solver or Options(), memory=0.0)
    plain = _make(name, solver, mu, server_rate)
    return Guarded(plain, robust) if robust is not None and robust.active else plain


def _make(  # noqa: PLR0911 - one line per algorithm is the clearest table
    name: AlgorithmName, solver: Options | None, mu: float | None, server_rate: float | None
) -> Algorithm[Any]:
    proximal = {} if mu is None else {"mu": mu}
    server = {} if server_rate is None else {"rate": server_rate}
    match name:
        case "fedecado":
            return FedEcado(solver)
        case "fedavg":
            return fedavg()
        case "fedprox":
            return fedprox(**proximal)
        case "fednova":
            return fednova(**proximal)
        case "scaffold":
            return Scaffold()
        case "feddyn":
            return FedDyn(**proximal)
        case "fedbuff":
            return fedbuff(**server)
        case "fedadam":
            return fedadam(**server)
        case "fedexp":
            return fedexp()
    assert_never(name)
