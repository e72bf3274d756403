"""A federation as scalars and named vectors, and back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedecado.common.layout import Vector
from fedecado.server.algorithms import ClientVectors
from fedecado.server.federation import Content, Federation, Result
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
    """What a federation holds; nothing is copied, and nobody changes these vectors from here on."""
    content = federation.content()
    scalars, vectors = states.dump(content.state)
    for vector in vectors.values():
        vector.flags.writeable = False  # the next round else takes its memory
    return Held(scalars, vectors, content.versions, content.results)


def restore(recipe: Recipe, engine: Engine, content: Held, clients: ClientVectors) -> Federation:
    """A federation that goes on where the one that was stored stood."""
    layout, newest = recipe.layout, content.versions[content.scalars["version"]]
    state = states.load(content.scalars, content.algorithm, newest[: layout.parameters], clients)
    whole = Content(state, content.versions, content.updates)
    return Federation.resumed(engine, recipe.make_algorithm(), layout, whole)
