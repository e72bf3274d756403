"""Engine events as rows of the journal, and back."""

import json
from collections.abc import Mapping
from typing import Any, Final, get_args

from fedecado.common.errors import StoreError
from fedecado.common.layout import Vector
from fedecado.common.records import contents
from fedecado.server.federation import Result
from fedecado.server.rounds import Enrolled, Event

NOTE, RECIPE = "note", "recipe"
"""Kinds of rows that are not events of the engine."""

_BESIDE: Final[tuple[str, ...]] = ("result", "digest", "outcome")
"""Fields of a row that are not the event's."""

_KINDS: Final[dict[str, type[Any]]] = {kind.__name__: kind for kind in get_args(Event)}


def encode_event(event: Event) -> tuple[str, dict[str, Any]]:
    """The kind of an event and its fields."""
    return type(event).__name__, contents(event)


def decode_event(kind: str, fields: Mapping[str, Any]) -> Event:
    """The event behind a row."""
    try:
        made: Event = _KINDS[kind](**fields)
    except (KeyError, TypeError) as error:
        raise StoreError(
            f"the journal holds {kind!r} with {sorted(fields)}, which this version does not know; "
            "use the version of fedecado that wrote it, or a newer one"
        ) from error
    # JSON knows no tuples.
    return Enrolled(made.client, made.samples, tuple(made.tasks)) if isinstance(made, Enrolled) else made


def encode_result(result: Result) -> dict[str, Any]:
    """The scalars of a result."""
    return {
        "time": result.time,
        "curvature": result.curvature,
        "steps": result.steps,
        "loss_before": result.loss_before,
        "loss_after": result.loss_after,
    }


def decode_result(scalars: Mapping[str, Any], state: Vector) -> Result:
    return Result(state=state, **scalars)


def decode_row(
    kind: str, payload: Mapping[str, Any], state: Vector | None
) -> tuple[Event, Result | None, dict[str, Any]]:
    """The event of a row, its result if the vector is there, and what else was recorded with it."""
    fields = dict(payload)
    beside = {name: fields.pop(name) for name in _BESIDE if name in fields}
    result = None if state is None else decode_result(beside["result"], state)
    return decode_event(kind, fields), result, beside


def to_json(value: Any) -> str:
    """Compact text; floats come back bit for bit, and NaN is allowed (a loss may be one)."""
    return json.dumps(value, separators=(",", ":"))


def from_json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise StoreError(
            f"{what} is not JSON ({error}); the database was changed, restore a backup"
        ) from error
