"""The entry point: find the command, read its settings, run it, turn errors into exit codes.

A command is a module with a docstring (its description in `--help`), `run(loaded, args) -> int`
and, when it wants them, `SETTINGS` (a settings class) and `add_arguments(parser)`. Modules are
imported only when chosen, so `fedecado --help` loads neither pydantic nor torch.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from fedecado.common.errors import ConfigError, FedecadoError
from fedecado.common.loading import loading

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("fedecado.cli.up", "Run a whole federation on this machine: a coordinator and worker processes"),
    "coordinator": ("fedecado.cli.coordinator", "Coordinate a run"),
    "simulate": ("fedecado.cli.simulate", "Run a federation in one process on a virtual clock"),
    "compare": ("fedecado.cli.compare", "Compare algorithms over settings and seeds, on the same data"),
    "partition": ("fedecado.cli.partition", "Show how a task deals its data out to clients"),
    "worker": ("fedecado.cli.worker", "Train on this machine's data for a coordinator"),
    "loadtest": ("fedecado.cli.loadtest", "Put a coordinator under load with many simulated workers"),
    "config": ("fedecado.cli.config", "Show the effective configuration and where each value comes from"),
    "status": ("fedecado.cli.status", "Show where a run stands and what it waits for"),
    "dashboard": ("fedecado.cli.dashboard", "Look at a run that is over in a browser"),
    "model": ("fedecado.cli.model", "Download a run's model, or look into a model file"),
    "store": ("fedecado.cli.store", "Check, list, clean or export the folder of a run"),
    "replay": ("fedecado.cli.replay", "Execute a run again from its record and find the first difference"),
    "pause": ("fedecado.cli.pause", "Pause a run"),
    "resume": ("fedecado.cli.resume", "Go on with a paused run"),
    "stop": ("fedecado.cli.stop", "End a run"),
    "drop": ("fedecado.cli.drop", "End workers' sessions; they may come back"),
    "ban": ("fedecado.cli.ban", "Shut workers out of a run"),
    "unban": ("fedecado.cli.unban", "Let banned workers come back"),
    "init": ("fedecado.cli.init", "Start a project with settings and a task that trains as it is"),
    "certs": ("fedecado.cli.certs", "Make, renew and revoke the certificates of a federation"),
    "tokens": ("fedecado.cli.tokens", "Make the tokens with which workers enrol"),
    "doctor": ("fedecado.cli.doctor", "Check the installation and the way to a coordinator"),
}

FAILED, MISUSED, INTERRUPTED, PIPE_CLOSED = 1, 2, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fedecado ARGV` and return its exit code."""
    try:
        code = _dispatch(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except FedecadoError as error:
        _report(error)
        return MISUSED if isinstance(error, ConfigError) else FAILED
    except KeyboardInterrupt as error:
        _trace(error)
        return INTERRUPTED
    except BrokenPipeError as error:
        _trace(error)
        _detach_stdout()
        return PIPE_CLOSED


def _dispatch(argv: Sequence[str]) -> int:
    if not argv:
        sys.stderr.write(_overview())
        return MISUSED
    name, *rest = argv
    if name in ("-h", "--help"):
        sys.stdout.write(_overview())
        return 0
    if name == "--version":
        from importlib.metadata import version

        sys.stdout.write(f"fedecado {version('fedecado')}\n")
        return 0
    if name not in COMMANDS:
        from fedecado.common.wording import did_you_mean

        what = "flag" if name.startswith("-") else "command"
        hint = did_you_mean(name, [*COMMANDS, "--help", "--version"])
        raise ConfigError(f"unknown {what} {name!r}{hint or '; fedecado --help lists the commands'}")
    return _run(name, rest)


@contextmanager
def _without_plugins() -> Iterator[None]:
    """No plugins of pydantic for our own settings: looking for some reads about every installed package."""
    key = "PYDANTIC_DISABLE_PLUGINS"
    if key in os.environ:
        yield
        return
    os.environ[key] = "__all__"
    try:
        yield
    finally:
        del os.environ[key]  # a task of the user's may want them


def _run(name: str, argv: Sequence[str]) -> int:
    from importlib import import_module

    from fedecado.cli.parser import Parser

    with _without_plugins(), loading():
        module = import_module(COMMANDS[name][0])
    parser = Parser(name, module.__doc__ or "")
    if hasattr(module, "SETTINGS"):
        parser.add_argument(
            "--config",
            type=Path,
            metavar="FILE",
            help="TOML file to read (default fedecado.toml in this folder, when there is one)",
        )
    if hasattr(module, "add_arguments"):
        module.add_arguments(parser)
    try:
        return _load_and_run(module, parser, argv)
    except SystemExit as stop:
        # argparse leaves this way after --help.
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else FAILED


def _load_and_run(module: ModuleType, parser: Any, argv: Sequence[str]) -> int:
    if not hasattr(module, "SETTINGS"):
        return int(module.run(None, parser.parse(argv)))
    from fedecado.common.flags import add_flags, collect
    from fedecado.common.sections import Everything
    from fedecado.common.settings import load

    add_flags(parser, module.SETTINGS)
    args = parser.parse(argv)
    loaded = load(module.SETTINGS, file=args.config, flags=collect(args, module.SETTINGS), known=Everything)
    return int(module.run(loaded, args))


def _overview() -> str:
    width = max(map(len, COMMANDS))
    commands = "".join(f"  {name:<{width}}  {text}\n" for name, (_, text) in COMMANDS.items())
    return (
        "usage: fedecado COMMAND [options]\n\n"
        "Asynchronous federated learning as an electric circuit.\n\n"
        f"commands:\n{commands}\n"
        "fedecado COMMAND --help describes a command and its settings; fedecado --version, the version.\n"
        "Settings come from fedecado.toml, then FEDECADO_* variables, then flags; the last one wins.\n"
    )


def _report(error: FedecadoError) -> None:
    _trace(error)
    sys.stderr.write(f"fedecado: error: {error}\n")


def _trace(error: BaseException) -> None:
    if os.environ.get("FEDECADO_DEBUG", "0") not in ("", "0"):
        import traceback

        traceback.print_exception(error)


def _detach_stdout() -> None:
    """Send what is still buffered nowhere, or the interpreter complains about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
