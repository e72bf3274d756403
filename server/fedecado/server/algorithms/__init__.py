"""Federated algorithms behind one interface: FedECADO and the baselines it is compared with."""

from typing import Any, assert_never

from fedecado.common.names import AlgorithmName
from fedecado.server.algorithms.averaging import fedadam, fedavg, fedbuff, fedexp, fednova, fedprox
from fedecado.server.algorithms.base import (
    Aggregated,
    Algorithm,
    Assignment,
    ClientVectors,
    Gather,
    MemoryVectors,
    Report,
    Update,
    aggregate_all,
)
from fedecado.server.algorithms.corrected import FedDyn, Scaffold
from fedecado.server.algorithms.fedecado import FedEcado
from fedecado.server.numerics.options import Options

__all__ = [
    "Aggregated",
    "Algorithm",
    "AlgorithmName",
    "Assignment",
    "ClientVectors",
    "Gather",
    "MemoryVectors",
    "Options",
    "Report",
    "Update",
    "aggregate_all",
    "make_algorithm",
]


def make_algorithm(  # noqa: PLR0911 - one line per algorithm is the clearest table
    name: AlgorithmName,
    *,
    solver: Options | None = None,
    mu: float | None = None,
    server_rate: float | None = None,
) -> Algorithm[Any]:
    """The named algorithm; a knob left at None takes the algorithm's own default."""
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
