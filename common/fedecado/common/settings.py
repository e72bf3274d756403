"""Read one frozen settings object from a TOML file, the environment and the flags.

Later sources win: defaults, file, environment (`FEDECADO_ROUNDS__DEADLINE=30`), flags. Free
tables such as `task.arguments` merge entry by entry. Commands share one file, so a name is
refused only when no command knows it. In every source, "none" clears an optional setting.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from fedecado.common.errors import ConfigError
from fedecado.common.fields import ENV_DELIMITER, ENV_PREFIX, Setting, sections_of, settings_of
from fedecado.common.sources import Given, read_env, read_file, read_flags
from fedecado.common.wording import did_you_mean, listing

DEFAULT = "default"


class Section(BaseModel):
    """A table of the configuration file. Its docstring's first line titles it in `--help`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


class Settings(BaseSettings):
    """The settings of one command: its fields are sections. Made by `load`."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=ENV_DELIMITER,
        hide_input_in_errors=True,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # pydantic's own sources neither refuse unknown names nor tell where a value came from;
        # `load` does both, so constructing a settings object must read nothing more.
        return (init_settings,)


S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """Settings, and where each came from.

    `origin` maps a dotted name to `default`, the file's name, `environment FEDECADO_X__Y` or
    `flag --x`. Entries of free tables have their own names beside that of their table.
    """

    settings: S
    origin: Mapping[str, str]


def load(
    cls: type[S],
    *,
    file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    known: type[Settings] | None = None,
) -> Loaded[S]:
    """Merge all sources into a `cls`, or raise one `ConfigError` that lists every problem.

    `flags` maps dotted names to typed values or their text. `known` holds the sections of all
    commands: the file and the environment may name those too.
    """
    mine = settings_of(cls)
    everything = (settings_of(known) if known else {}) | mine
    found = [
        read_file(file, everything),
        read_env(os.environ if env is None else env, everything),
        read_flags(flags or {}, mine),
    ]
    layers = _Layers(mine)
    for given in (given for source in found for given in source.given):
        layers.put(given)
    problems = [problem for source in found for problem in source.problems] + layers.problems
    settings: S | None = None
    try:
        settings = cls(**layers.tree(sections_of(cls)))
    except ValidationError as error:
        problems += _explain(error, layers)
    if problems or settings is None:
        # Raised outside the handler: the chained pydantic error would print secrets.
        raise ConfigError(listing(problems, "problems in the configuration"))
    return Loaded(settings, layers.origin)


@dataclass(slots=True)
class _Layers:
    """The values so far, each source laid over the ones before."""

    mine: Mapping[str, Setting]
    values: dict[str, Any] = field(init=False)
    origin: dict[str, str] = field(init=False)
    raw: dict[str, Any] = field(init=False)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values = {name: item.default for name, item in self.mine.items() if not item.required}
        self.origin = dict.fromkeys(self.mine, DEFAULT)
        self.raw = dict(self.values)

    def put(self, given: Given) -> None:
        name = given.setting.name
        if name not in self.mine:
            return
        if given.entry is not None:
            self._put_entry(name, given.entry, given)
            return
        if given.setting.number and isinstance(given.value, bool):
            # Python counts True as 1, and pydantic would follow it.
            self.problems.append(f"{name} = {given.value} ({given.origin}): must be {given.setting.allowed}")
            return
        self.values[name] = given.setting.read(given.value)
        self.raw[name], self.origin[name] = given.value, given.origin
        if isinstance(given.value, Mapping):
            self.origin |= {f"{name}.{entry}": given.origin for entry in given.value}

    def _put_entry(self, name: str, entry: str, given: Given) -> None:
        below = self.values.get(name)
        self.values[name] = self.raw[name] = {
            **(below if isinstance(below, Mapping) else {}),
            entry: given.value,
        }
        self.origin[f"{name}.{entry}"] = given.origin
        parts = dict.fromkeys(self.origin.get(f"{name}.{key}", DEFAULT) for key in self.values[name])
        self.origin[name] = ", ".join(parts)

    def tree(self, sections: Mapping[str, type[BaseModel]]) -> dict[str, Any]:
        """Nested as the model wants it; each section is there, so that what it lacks is named."""
        root: dict[str, Any] = {}
        for section in sections:
            _descend(root, section)
        for name, value in self.values.items():
            _descend(root, self.mine[name].section)[self.mine[name].key] = value
        return root


def _descend(root: dict[str, Any], section: str) -> dict[str, Any]:
    for part in filter(None, section.split(".")):
        root = root.setdefault(part, {})
    return root


def _explain(error: ValidationError, layers: _Layers) -> Iterator[str]:
    """One problem per setting, whatever number of errors the parts of its type gave."""
    seen: set[str] = set()
    for detail in error.errors(include_url=False):
        name = _name(detail, layers.mine)
        if name not in seen:
            seen.add(name)
            yield _problem(name, detail, layers)


def _name(detail: ErrorDetails, mine: Mapping[str, Setting]) -> str:
    """The setting an error is about, or the section when it is about several of its settings."""
    path = [str(part) for part in detail["loc"]]
    names = (".".join(path[:depth]) for depth in range(len(path), 0, -1))
    return next((name for name in names if name in mine), ".".join(path))


def _problem(name: str, detail: ErrorDetails, layers: _Layers) -> str:
    own_words = detail["type"] in ("value_error", "assertion_error")
    message = detail["msg"].partition(", ")[2] if own_words else ""
    setting = layers.mine.get(name)
    if setting is None:
        origins = [f"{n}: {o}" for n, o in layers.origin.items() if n.startswith(f"{name}.") and o != DEFAULT]
        return f"{name or 'settings'}: {message or detail['msg']}" + (
            f" ({'; '.join(origins)})" if origins else ""
        )
    if name not in layers.raw:
        return (
            f"{name} is not set: give it as {setting.flag}, {setting.env} or in the file ({setting.allowed})"
        )
    raw = layers.raw[name]
    shown = "****" if setting.secret else repr(raw)
    hint = did_you_mean(raw, setting.choices) if setting.choices and isinstance(raw, str) else ""
    return f"{name} = {shown} ({layers.origin[name]}): {message or f'must be {setting.allowed}'}{hint}"
