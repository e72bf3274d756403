"""The one place that looks inside a `Federation`: what it holds between rounds, taken out and put back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedecado.common.layout import Vector
from fedecado.server.algorithms import Algorithm, ClientVectors
from fedecado.server.federation import Federation, Result
from fedecado.server.rounds import Engine
from fedecado.server.store import states
from fedecado.server.store.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Held:
    """A federation's content between rounds, beside the clients' vectors."""

    scalars: Mapping[str, Any]
    algorithm: Mapping[str, Vector]
    versions: Mapping[int, Vector]
    updates: Mapping[int, Result]
    """Accepted results of the open round, by task."""


def held(federation: Federation) -> Held:
    """What a federation holds; its vectors are values that nobody changes, so nothing is copied."""
    scalars, vectors = states.dump(federation._state)
    updates = {task: delivered.result for task, delivered in federation._delivered.items()}
    return Held(scalars, vectors, dict(federation._versions), updates)


def restore(recipe: Recipe, engine: Engine, content: Held, clients: ClientVectors) -> Federation:
    """A federation that goes on where the one that was stored stood."""
    layout, newest = recipe.layout, content.versions[content.scalars["version"]]
    federation = Federation(engine, recipe.make_algorithm(), layout, newest, clients)
    central = newest[: layout.parameters]
    federation._state = states.load(content.scalars, content.algorithm, central, clients)
    federation._versions = dict(content.versions)
    for task, result in content.updates.items():
        federation.accept(task, result)
    return federation


def change_algorithm(federation: Federation, algorithm: Algorithm[Any]) -> None:
    """Go on with other knobs of the same algorithm."""
    federation._algorithm = algorithm
