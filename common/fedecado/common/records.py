"""Values that do not change once they are made, for what is made many times a second."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(kind: type[T]) -> type[T]:
    """A dataclass that is frozen for the type checker; one that really is takes thrice as long to make."""
    return dataclass(slots=True, unsafe_hash=True)(kind)
