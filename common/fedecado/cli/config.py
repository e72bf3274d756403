"""Show the effective configuration: every setting, its value and where that came from.

Later sources win: defaults, the TOML file, FEDECADO_* variables, flags. On a terminal this
prints a table, elsewhere TOML that can be used as a configuration file again. Secrets are
never shown. A wrong configuration is reported in full, so this checks a file, too.

Examples:
  fedecado config                             what would be used in this folder
  fedecado config > new.toml                  the same as a file to start from
  fedecado config --config prod.toml --section rounds
  FEDECADO_ROUNDS__DEADLINE=30 fedecado config --json | jq '."rounds.deadline"'
"""

import argparse
import sys

from fedecado.cli import render
from fedecado.common.errors import ConfigError
from fedecado.common.fields import sections_of, settings_of
from fedecado.common.sections import Everything
from fedecado.common.settings import Loaded
from fedecado.common.wording import did_you_mean

SETTINGS = Everything


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--section", metavar="NAME", help="show this section only")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(loaded: Loaded[Everything], args: argparse.Namespace) -> int:
    entries = render.entries(loaded, _names(args.section))
    if args.json:
        sys.stdout.write(render.to_json(entries))
    elif sys.stdout.isatty():
        render.print_table(entries)
    else:
        sys.stdout.write(render.to_toml(entries))
    return 0


def _names(section: str | None) -> list[str]:
    """Names of the settings to show."""
    sections = sections_of(SETTINGS)
    if section is not None and section not in sections:
        hint = did_you_mean(section, sections) or f"; there are {', '.join(sections)}"
        raise ConfigError(f"unknown section {section!r}{hint}")
    return [name for name in settings_of(SETTINGS) if section is None or name.startswith(f"{section}.")]
