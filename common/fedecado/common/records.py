"""Values that do not change once they are made, for what is made many times a second."""

from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(kind: type[T]) -> type[T]:
    """A dataclass that is frozen for the type checker; one that really is takes thrice as long to make."""
    return dataclass(slots=True, unsafe_hash=True)(kind)


def contents(made: Any) -> dict[str, Any]:
    """A record's fields by name; `asdict` would copy what they hold, each of a thousand names by itself."""
    return {name: getattr(made, name) for name in made.__slots__}
