"""Algorithm states as plain scalars and named vectors, and back.

The centre is not part of it: it is the newest version, which is stored with its buffers. Neither are the
clients' vectors, which have files of their own.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedecado.common.errors import StoreError
from fedecado.common.layout import Vector
from fedecado.server.algorithms import ClientVectors
from fedecado.server.algorithms.averaging import AveragingState
from fedecado.server.algorithms.corrected import CorrectedState
from fedecado.server.algorithms.fedecado import FedEcadoState

State = FedEcadoState | CorrectedState | AveragingState
Scalars = dict[str, Any]


def dump(state: State) -> tuple[Scalars, dict[str, Vector]]:
    """The scalars and vectors that `load` makes the state from."""
    common: Scalars = {"version": state.version, "time": state.time}
    match state:
        case FedEcadoState():
            past = {
                "level": state.level,
                "pace": state.pace,
                "window": state.window,
                "visits": state.visits,
                "doubt": state.doubt,
            }
            return {"kind": "circuit", **past, **common}, {"F": state.F}
        case CorrectedState():
            return {"kind": "corrected", "enrolled": state.enrolled, **common}, {"total": state.total}
        case AveragingState():
            moments = {f"moment-{i}": moment for i, moment in enumerate(state.moments)}
            return {"kind": "averaging", **common}, moments
    raise StoreError(f"no way to store {type(state).__name__}; add it to store/states.py")


def load(
    scalars: Mapping[str, Any], vectors: Mapping[str, Vector], central: Vector, clients: ClientVectors
) -> State:
    """The state that was dumped, with its centre and the clients' vectors."""
    rest = dict(scalars)
    kind = rest.pop("kind", None)
    try:
        match kind:
            case "circuit":
                rest.pop("stretch", None)  # of runs that knew no pace yet: it is found again
                return FedEcadoState(central, clients, np.array(vectors["F"]), **rest)
            case "corrected":
                return CorrectedState(central, clients, np.array(vectors["total"]), **rest)
            case "averaging":
                moments = tuple(np.array(vectors[f"moment-{i}"]) for i in range(len(vectors)))
                return AveragingState(central, moments=moments, **rest)
    except (KeyError, TypeError) as error:
        raise StoreError(f"the stored {kind} state does not fit this version of fedecado: {error}") from error
    raise StoreError(f"the stored state is of an unknown kind {kind!r}; use a newer version of fedecado")
