"""Start a project: settings, a task that trains as it is, and a README with the commands to run it.

Writes fedecado.toml, task.py, README.md and .gitignore into DIR, which is made if need be (default: this
folder). Files that exist are never overwritten unless --force is given.

Examples:
  fedecado init digits && cd digits && fedecado simulate
  fedecado init
"""

import argparse
import re
import sys
from pathlib import Path

from fedecado.cli.starter import files
from fedecado.common.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", type=Path, nargs="?", default=Path(), metavar="DIR", help="project folder"
    )
    parser.add_argument("--force", action="store_true", help="overwrite files that exist")


def run(_: None, args: argparse.Namespace) -> int:
    folder: Path = args.directory
    contents = files(_name(folder))
    there = [name for name in contents if (folder / name).exists()]
    if there and not args.force:
        raise ConfigError(
            f"{folder} already holds {', '.join(there)}; choose another folder, or give --force"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write the project to {folder}: {error}; choose another folder") from error
    enter = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
    sys.stdout.write(
        f"wrote {', '.join(contents)} to {folder.resolve()}\n"
        f"try it without a network:  {enter}fedecado simulate\n"
        f"with one:                  {enter}fedecado up\n"
        "README.md tells how to go on; task.py is where your model and data belong.\n"
    )
    return 0


def _name(folder: Path) -> str:
    """The folder's name as a run may be called."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-._") or "run"
