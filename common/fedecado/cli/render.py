"""Settings and their origins as TOML, JSON or a table."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import reduce
from itertools import groupby
from typing import Any

from fedecado.common.fields import Setting, settings_of
from fedecado.common.settings import Loaded, S


@dataclass(frozen=True, slots=True)
class Entry:
    """A setting with its value and origin; a free table's entries each have their own origin."""

    setting: Setting
    value: Any
    origin: str
    entry_origins: Mapping[str, str]

    @property
    def hidden(self) -> bool:
        return self.setting.secret and self.value is not None


def entries(loaded: Loaded[S], names: Iterable[str] | None = None) -> list[Entry]:
    """The settings called `names`, or all, in order of declaration."""
    known = settings_of(type(loaded.settings))
    found = []
    for name in known if names is None else names:
        value = reduce(getattr, name.split("."), loaded.settings)
        origin = loaded.origin.get(name, "default")
        keys: list[str] = list(value) if isinstance(value, Mapping) else []
        found.append(
            Entry(known[name], value, origin, {k: loaded.origin.get(f"{name}.{k}", origin) for k in keys})
        )
    return found


def to_toml(entries: Iterable[Entry]) -> str:
    """A configuration file that gives the same settings, each with its origin in a comment."""
    # Free tables are tables of their own, and so stand after the plain settings of their section.
    ordered = sorted(entries, key=lambda entry: entry.setting.section != "")
    parts = []
    for section, group in groupby(ordered, key=lambda entry: entry.setting.section):
        members = list(group)
        lines = [_line(entry) for entry in members if not isinstance(entry.value, Mapping)]
        if lines:
            parts.append("\n".join(([f"[{section}]"] if section else []) + lines))
        parts += [_table(entry) for entry in members if isinstance(entry.value, Mapping)]
    return "\n\n".join(parts) + "\n"


def to_json(entries: Iterable[Entry]) -> str:
    """An object per dotted name, with `value` and `origin`."""
    content = {
        entry.setting.name: {
            "value": "****" if entry.hidden else _plain(entry.value),
            "origin": entry.origin,
        }
        for entry in entries
    }
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def print_table(entries: Iterable[Entry]) -> None:
    """A table on the terminal; what is not a default stands out."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("setting", "value", "origin", "meaning")
    for _, group in groupby(entries, key=lambda entry: entry.setting.section):
        for entry in group:
            style = "dim" if entry.origin == "default" else "bold"
            cells = (entry.setting.name, entry.setting.show(entry.value), entry.origin)
            meaning = entry.setting.info.description or ""
            table.add_row(*(Text(cell, style=style) for cell in cells), Text(meaning, style="dim"))
        table.add_section()
    Console().print(table)


def _line(entry: Entry) -> str:
    if entry.hidden:
        # As a comment: loaded again, the stars would become the secret.
        return f'# {entry.setting.key} = "****"{_comment(entry.origin)}'
    return f"{_key(entry.setting.key)} = {_toml(entry.value)}{_comment(entry.origin)}"


def _table(entry: Entry) -> str:
    head = f"[{entry.setting.name}]" + ("" if entry.value else _comment(entry.origin))
    lines = (
        f"{_key(key)} = {_toml(value)}{_comment(entry.entry_origins[key])}"
        for key, value in entry.value.items()
    )
    return "\n".join([head, *lines])


def _comment(origin: str) -> str:
    return "  # " + "".join(char if char.isprintable() else "?" for char in origin)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _string(key)


def _string(text: str) -> str:
    # JSON's escapes are TOML's, save that TOML forbids DEL and the surrogates of ensure_ascii.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(key))} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple | set | frozenset):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return _string("none" if value is None else str(value))


def _plain(value: Any) -> Any:
    """`value` in JSON's types; infinity, which JSON lacks, as the text that is read back."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if (
        value is None
        or isinstance(value, bool | int | str)
        or (isinstance(value, float) and math.isfinite(value))
    ):
        return value
    return str(value)
