"""Command-line flags made from a settings class.

argparse only collects text here. Judging it is left to `load`, which knows the other sources
too and lists all problems at once.
"""

import argparse
from collections.abc import Mapping
from typing import Any

from fedecado.common.errors import ConfigError
from fedecado.common.fields import Setting, sections_of, settings_of
from fedecado.common.settings import Settings


def add_flags(parser: argparse.ArgumentParser, cls: type[Settings]) -> None:
    """Give `parser` a flag for each setting of `cls`, grouped by section."""
    docs = {name: (section.__doc__ or "").partition("\n")[0] for name, section in sections_of(cls).items()}
    groups: dict[str, argparse._ArgumentGroup] = {}
    for setting in settings_of(cls).values():
        section = setting.section
        if section not in groups:
            groups[section] = parser.add_argument_group(section or "general", docs.get(section))
        _add_flag(groups[section], setting)


def collect(args: argparse.Namespace, cls: type[Settings]) -> dict[str, Any]:
    """The flags that were given, by dotted name, as `load` takes them."""
    flags: dict[str, Any] = {}
    given: Mapping[str, Any] = vars(args)
    for name, setting in settings_of(cls).items():
        if name not in given:
            continue
        if not setting.table:
            flags[name] = given[name]
            continue
        for item in given[name]:
            entry, equals, value = item.partition("=")
            if not equals or not entry.strip():
                raise ConfigError(f"{setting.flag} {item!r}: must be KEY=VALUE, as in {setting.flag} size=10")
            flags[f"{name}.{entry.strip()}"] = value.strip()
    return flags


def _add_flag(group: argparse._ArgumentGroup, setting: Setting) -> None:
    options: dict[str, Any] = {"dest": setting.name, "default": argparse.SUPPRESS, "help": _help(setting)}
    if setting.boolean:
        options["action"] = argparse.BooleanOptionalAction
    else:
        options["metavar"] = setting.metavar
        if setting.table:
            options["action"] = "append"
    group.add_argument(setting.flag, **options)


def _help(setting: Setting) -> str:
    default = "required" if setting.required else f"default {setting.show(setting.default)}"
    # The metavar lists the choices already; a switch needs no words, a table says it is repeatable.
    allowed = "repeatable" if setting.table else "" if setting.boolean or setting.choices else setting.allowed
    if setting.choices and setting.nullable:
        allowed = "or none"
    facts = "; ".join(filter(None, [allowed, default]))
    return f"{setting.info.description or ''} ({facts})".strip().replace("%", "%%")
