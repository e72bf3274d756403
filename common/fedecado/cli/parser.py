"""An argument parser that raises instead of exiting, and suggests the flag that was meant."""

import argparse
from collections.abc import Sequence
from typing import NoReturn

from fedecado.common.errors import ConfigError
from fedecado.common.wording import did_you_mean, listing


class Parser(argparse.ArgumentParser):
    """The parser of one command, described by its module's docstring."""

    def __init__(self, command: str, doc: str) -> None:
        super().__init__(
            prog=f"fedecado {command}",
            description=doc.strip(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """The arguments; all that is not understood becomes one `ConfigError`."""
        args, rest = self.parse_known_args(argv)
        if rest:
            # What follows an unknown flag is most likely its value: name the flags alone.
            flags = [word.partition("=")[0] for word in rest if word.startswith("-")]
            problems = [f"unknown flag {flag!r}{self._hint(flag)}" for flag in flags]
            self.error(listing(problems or [f"unexpected argument {rest[0]!r}"], "unknown flags"))
        return args

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see {self.prog} --help)")

    def format_usage(self) -> str:
        return f"usage: {self._synopsis()}\n"

    def format_help(self) -> str:
        # argparse would list every flag of every section in the usage line.
        self.usage = self._synopsis()
        return super().format_help()

    def _synopsis(self) -> str:
        places = (str(action.metavar or action.dest.upper()) for action in self._get_positional_actions())
        return " ".join([self.prog, "[options]", *places])

    def _hint(self, flag: str) -> str:
        return did_you_mean(flag, self._option_string_actions)
