"""Where values come from: the TOML file, the environment, the flags.

Each source turns what it holds into `Given` values and says what it does not know; none of
them judges a value, that is the model's part.
"""

import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedecado.common.errors import ConfigError
from fedecado.common.fields import ENV_DELIMITER, ENV_PREFIX, Setting, toml_value
from fedecado.common.wording import did_you_mean

DEFAULT_FILE = Path("fedecado.toml")

# Variables that carry the prefix and are no settings.
_RESERVED = frozenset({"FEDECADO_DEBUG", "FEDECADO_ADMIN_TOKEN", "FEDECADO_FAULT"})

# Kubernetes describes every Service to every pod; one named fedecado-... lands on the prefix.
_SERVICE_LINK = re.compile(
    r"_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$"
)
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")


@dataclass(frozen=True, slots=True)
class Given:
    """A value from one source; `entry` names one entry of a free table, else the value is whole."""

    setting: Setting
    value: Any
    origin: str
    entry: str | None = None


@dataclass(slots=True)
class Found:
    """What one source holds, and what is wrong with it."""

    given: list[Given] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_file(file: Path | None, known: Mapping[str, Setting]) -> Found:
    """Settings of a TOML file; without a name, `fedecado.toml` here when there is one."""
    if file is None:
        if not DEFAULT_FILE.is_file():
            return Found()
        file = DEFAULT_FILE
    found = Found()
    _read_table(_parse(file), "", str(file), known, found)
    return found


def read_env(env: Mapping[str, str], known: Mapping[str, Setting]) -> Found:
    """Settings among environment variables; each one with the prefix must be known."""
    found = Found()
    by_env = {setting.env: setting for setting in known.values()}
    for name in sorted(env):
        if not name.startswith(ENV_PREFIX) or name in _RESERVED:
            continue
        origin = f"environment {name}"
        if (setting := by_env.get(name)) is not None:
            found.given += _whole(setting, env[name], origin)
        elif (table := _table_above(name, ENV_DELIMITER, by_env)) is not None:
            entry = name.removeprefix(table.env + ENV_DELIMITER).lower()
            found.given.append(Given(table, toml_value(env[name]), origin, entry))
        elif not _is_service_link(name, env[name]):
            hint = did_you_mean(_bare(name), by_env.keys() | _RESERVED, _bare)
            found.problems.append(f"unknown environment variable {name!r}{hint}")
    return found


def read_flags(flags: Mapping[str, Any], known: Mapping[str, Setting]) -> Found:
    """Settings by dotted name from the command line; `table.entry` sets one entry of a free table."""
    found = Found()
    for name, value in flags.items():
        if (setting := known.get(name)) is not None:
            found.given += _whole(setting, value, f"flag {setting.flag}")
        elif (table := _table_above(name, ".", known)) is not None:
            entry = name.removeprefix(table.name + ".")
            read = toml_value(value) if isinstance(value, str) else value
            found.given.append(Given(table, read, f"flag {table.flag}", entry))
        else:
            flag = "--" + name.replace(".", "-").replace("_", "-")
            hint = did_you_mean(flag, [setting.flag for setting in known.values()])
            found.problems.append(f"unknown flag {flag!r}{hint}")
    return found


def _parse(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            return tomllib.load(stream)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML: it is not UTF-8 text ({error})") from None
    except OSError as error:
        raise ConfigError(
            f"cannot read the configuration file {str(file)!r}: {os.strerror(error.errno or 0)}; "
            "name an existing TOML file with --config"
        ) from None


def _read_table(
    table: Mapping[str, Any], prefix: str, origin: str, known: Mapping[str, Setting], found: Found
) -> None:
    sections = _sections(known)
    for key, value in table.items():
        name = prefix + key
        if name in known:
            found.given.append(Given(known[name], value, origin))
        elif name in sections and isinstance(value, dict):
            _read_table(value, f"{name}.", origin, known, found)
        elif name in sections:
            found.problems.append(f"{name} = {value!r} ({origin}): must be a table, as in [{name}]")
        elif isinstance(value, dict):
            names = sections | {table.name for table in known.values() if table.table}
            found.problems.append(f"unknown table {name!r} in {origin}{did_you_mean(name, names)}")
        else:
            found.problems.append(f"unknown setting {name!r} in {origin}{_hint(key, prefix, known)}")


def _hint(key: str, prefix: str, known: Mapping[str, Setting]) -> str:
    """The nearest name of the same section, or else of any."""
    near = (name for name in known if name == prefix + _key(name))
    return did_you_mean(key, near, _key) or did_you_mean(key, known, _key)


def _key(name: str) -> str:
    return name.rpartition(".")[2]


def _bare(variable: str) -> str:
    return variable.removeprefix(ENV_PREFIX)


def _sections(known: Collection[str]) -> set[str]:
    parts = [name.split(".")[:-1] for name in known]
    return {".".join(part[:depth]) for part in parts for depth in range(1, len(part) + 1)}


def _whole(setting: Setting, value: Any, origin: str) -> Iterator[Given]:
    """A free table is taken entry by entry, so that it adds to the layers below."""
    entries = setting.read(value) if setting.table else None
    if isinstance(entries, Mapping):
        yield from (Given(setting, item, origin, str(entry)) for entry, item in entries.items())
    else:
        yield Given(setting, value, origin)


def _table_above(name: str, delimiter: str, known: Mapping[str, Setting]) -> Setting | None:
    """The free table that `name` is an entry of."""
    return next(
        (setting for top, setting in known.items() if setting.table and name.startswith(top + delimiter)),
        None,
    )


def _is_service_link(name: str, value: str) -> bool:
    return bool(_SERVICE_LINK.search(name) or (name.endswith("_PORT") and _SERVICE_URL.match(value)))
