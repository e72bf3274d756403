"""One setting as the file, the environment and the flags see it.

A settings class is a tree: a field whose type is a model is a section (never optional), any
other field is a setting with a dotted name such as `rounds.min_updates`. Its flag, its
environment variable, its help and what its errors say all follow from its declaration.

`json_schema_extra` of a field may hold `flag` (replaces the derived one), `metavar` (what the
help writes for the value) and `allowed` (words for what is accepted, when types cannot tell).
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

ENV_PREFIX = "FEDECADO_"
ENV_DELIMITER = "__"

_WORDS: dict[Any, tuple[str, str]] = {
    bool: ("true or false", "BOOL"),
    int: ("a whole number", "N"),
    float: ("a number", "X"),
    str: ("text", "TEXT"),
    Path: ("a path", "PATH"),
    SecretStr: ("secret text", "SECRET"),
}
_LISTS = (list, tuple, set, frozenset)
_BOUNDS = {
    "ge": ">=",
    "gt": ">",
    "le": "<=",
    "lt": "<",
    "min_length": "of length >=",
    "max_length": "of length <=",
}


@dataclass(frozen=True)
class Setting:
    """A leaf of a settings class."""

    name: str
    info: FieldInfo
    default: Any

    @property
    def required(self) -> bool:
        return self.default is PydanticUndefined

    @property
    def section(self) -> str:
        """Dotted name of the section it stands in; empty at the top level."""
        return self.name.rpartition(".")[0]

    @property
    def key(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.replace(".", ENV_DELIMITER).upper()

    @property
    def flag(self) -> str:
        return self._extra("flag") or "--" + self.name.replace(".", "-").replace("_", "-")

    @cached_property
    def types(self) -> tuple[Any, ...]:
        """The alternatives of its type; None stands apart, in `nullable`."""
        return tuple(member for member in _members(self.info.annotation) if member is not NoneType)

    @cached_property
    def nullable(self) -> bool:
        return NoneType in _members(self.info.annotation)

    @property
    def secret(self) -> bool:
        return SecretStr in self.types

    @property
    def boolean(self) -> bool:
        return self.types == (bool,)

    @property
    def number(self) -> bool:
        return bool({int, float} & set(self.types)) and bool not in self.types

    @property
    def table(self) -> bool:
        """Whether it is a free table of entries, such as a task's arguments."""
        return any(get_origin(member) is dict or member is dict for member in self.types)

    @property
    def array(self) -> bool:
        return any(get_origin(member) in _LISTS or member in _LISTS for member in self.types)

    @property
    def choices(self) -> tuple[str, ...]:
        literals = (member for member in self.types if get_origin(member) is Literal)
        return tuple(str(choice) for member in literals for choice in get_args(member))

    @property
    def allowed(self) -> str:
        """Words for the values it accepts: `a whole number >= 1, or none`."""
        text = self._extra("allowed")
        if not text:
            words = dict.fromkeys(_describe(member) for member in self.types)
            text = " ".join(filter(None, [" or ".join(words), self._bounds()]))
        return f"{text}, or none" if self.nullable else text

    @property
    def metavar(self) -> str:
        if self.choices:
            return "{" + ",".join(self.choices) + "}"
        plain = "KEY=VALUE" if self.table else "A,B" if self.array else "VALUE"
        return self._extra("metavar") or _WORDS.get(self.types[0], ("", plain))[1]

    def show(self, value: Any) -> str:
        """`value` as a person would type it; secrets stay hidden."""
        if value is None:
            return "none"
        if self.secret or isinstance(value, SecretStr):
            return "****"
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, _LISTS):
            return ",".join(str(item) for item in value) or "empty"
        if isinstance(value, Mapping):
            return ", ".join(f"{key}={item}" for key, item in value.items()) or "empty"
        return str(value)

    def read(self, value: Any) -> Any:
        """`value` as the model takes it; text may stand for none, a list or a table."""
        if isinstance(value, str):
            if self.nullable and value.strip().lower() == "none":
                return None
            if self.table or (self.array and value.lstrip().startswith("[")):
                return toml_value(value)
            if self.array:
                return [item for part in value.split(",") if (item := part.strip())]
        return value

    def _bounds(self) -> str:
        found = (
            (sign, getattr(item, name, None)) for item in self.info.metadata for name, sign in _BOUNDS.items()
        )
        return " and ".join(f"{sign} {limit}" for sign, limit in found if limit is not None)

    def _extra(self, name: str) -> str:
        extra = self.info.json_schema_extra
        return str(extra.get(name, "")) if isinstance(extra, dict) else ""


def settings_of(model: type[BaseModel]) -> dict[str, Setting]:
    """Every setting of `model` by its dotted name, in order of declaration."""
    return {setting.name: setting for setting in _walk(model, "", None)}


def sections_of(model: type[BaseModel], prefix: str = "") -> dict[str, type[BaseModel]]:
    """Every section of `model` by its dotted name, in order of declaration."""
    found: dict[str, type[BaseModel]] = {}
    for key, info in model.model_fields.items():
        if (section := _section(info)) is not None:
            found[prefix + key] = section
            found |= sections_of(section, f"{prefix}{key}.")
    return found


def toml_value(text: str) -> Any:
    """`text` read as a TOML value, or left as text: 3, 0.5, true, [1, 2], anything else.

    Python's True and False count too: as text, False would be true to whoever tests it.
    """
    if text in ("True", "False"):
        return text == "True"
    try:
        # Inside an inline table neither a line end nor a comment can pass for part of the value.
        read = tomllib.loads(f"v = {{x = {text}}}")
    except (ValueError, RecursionError):
        return text
    return read["v"]["x"] if read.keys() == {"v"} and read["v"].keys() == {"x"} else text


def _walk(model: type[BaseModel], prefix: str, instance: BaseModel | None) -> Iterator[Setting]:
    """Settings below `prefix`; a section's own default instance outranks its class's defaults."""
    for key, info in model.model_fields.items():
        default = (
            getattr(instance, key)
            if instance is not None
            else info.get_default(call_default_factory=True, validated_data={})
        )
        if (section := _section(info)) is None:
            yield Setting(prefix + key, info, default)
        else:
            yield from _walk(section, f"{prefix}{key}.", default if isinstance(default, section) else None)


def _section(info: FieldInfo) -> type[BaseModel] | None:
    kind = info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _members(annotation: Any) -> tuple[Any, ...]:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _members(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return tuple(member for part in get_args(annotation) for member in _members(part))
    return (annotation,)


def _describe(member: Any) -> str:
    origin = get_origin(member) or member
    if origin is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(member))
    if origin is dict:
        return "a table such as {key = 1}"
    if origin in _LISTS:
        return "a list such as a,b"
    return _WORDS[member][0] if member in _WORDS else str(getattr(member, "__name__", member))
