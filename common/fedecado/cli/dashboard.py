"""Look at a run that is over in a browser.

Serves the page that a coordinator serves with --observe-bind, from what a coordinator or `fedecado simulate`
left in the run's folder. Ctrl-C ends it.

Examples:
  fedecado dashboard runs/run
  fedecado dashboard runs/demo/fedavg --bind 127.0.0.1:9000
"""

import argparse
import asyncio
import re
import sys
from pathlib import Path

from fedecado.common.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="folder of the run, or its results.json")
    parser.add_argument(
        "--bind",
        default="127.0.0.1:0",
        metavar="HOST:PORT",
        help="address to serve on (default: a free port)",
    )
    parser.add_argument(
        "--public", action="store_true", help="let whoever reaches a --bind beyond this machine look"
    )


def run(_: None, args: argparse.Namespace) -> int:
    if not re.fullmatch(r"\S+:[0-9]{1,5}", args.bind):
        raise ConfigError(f"--bind {args.bind!r}: must be HOST:PORT, such as 127.0.0.1:8080")
    try:
        from fedecado.server.observe.access import Access
        from fedecado.server.observe.finished import read_run
        from fedecado.server.observe.http import Site
    except ModuleNotFoundError as error:
        raise ConfigError(f"the dashboard needs {error.name}; install fedecado[server]") from error
    from fedecado.server.observe.events import Feed

    snapshot = read_run(args.run)

    async def serve() -> None:
        access = Access(public=args.public)
        site = Site(Feed(lambda: snapshot), lambda: snapshot, access=access)
        await site.start(args.bind)
        if not access.open:
            await site.close()
            raise ConfigError(
                f"{args.bind} is beyond this machine, and the page has no password; say --public"
            )
        sys.stdout.write(f"dashboard of {snapshot['run']['name']} on {site.url}; Ctrl-C ends it\n")
        sys.stdout.flush()
        try:
            await until_told()
        finally:
            await site.close()

    asyncio.run(serve())
    return 0


async def until_told() -> None:
    """Wait for Ctrl-C or SIGTERM, both of which are a good end."""
    import signal

    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    await told.wait()
