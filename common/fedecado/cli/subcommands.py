"""Commands that have commands of their own; alone they print their help."""

import argparse
from collections.abc import Callable
from typing import Any

from fedecado.cli.parser import Parser


class _Sub(Parser):
    """A parser made the way argparse makes those of sub-commands."""

    def __init__(self, prog: str, description: str = "", **_: Any) -> None:
        super().__init__(prog.removeprefix("fedecado "), description)


def subcommands(parser: argparse.ArgumentParser, names: str) -> "argparse._SubParsersAction[_Sub]":
    """Where to add parsers; each sets the default `action`, a function of the parsed arguments."""

    def show_help(_: argparse.Namespace) -> int:
        parser.print_help()
        return 0

    parser.set_defaults(action=show_help)
    # Without `prog` argparse asks for a usage line that our parser does not make.
    return parser.add_subparsers(metavar=names, prog=parser.prog, parser_class=_Sub)


def run_subcommand(args: argparse.Namespace) -> int:
    """Run the chosen one."""
    action: Callable[[argparse.Namespace], int] = args.action
    return action(args)
