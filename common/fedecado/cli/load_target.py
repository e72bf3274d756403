"""The coordinator that a load test is about: one that runs somewhere, or one started for it."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedecado.cli import render
from fedecado.cli.children import Children
from fedecado.common.errors import ConfigError
from fedecado.common.sections import NetworkSection
from fedecado.common.settings import Loaded
from fedecado.common.timeouts import Timeouts
from fedecado.common.tls import TlsFiles
from fedecado.loadtest.plan import TlsPattern

if TYPE_CHECKING:
    from fedecado.cli.loadtest import LoadSettings

START_SECONDS = 120.0
"""A coordinator that does not listen by then will not."""
_RUN = "coordinator"


@dataclass(frozen=True, slots=True)
class Target:
    """Where it is, how to reach it, and its process if that is on this machine."""

    address: str
    workers_tls: TlsPattern | None = None
    admin_tls: TlsFiles | None = None
    pid: int | None = None


@asynccontextmanager
async def given(address: str, settings: "LoadSettings") -> AsyncIterator[Target]:
    """A coordinator that runs already."""
    if settings.loadtest.with_tls:
        raise ConfigError(
            "--with-tls is for a coordinator that is started here; give its --network-tls-* files"
        )
    pattern = _pattern(settings.network)
    admin = None if pattern is None else pattern.files("admin")
    if admin is not None and not admin.certificate.exists():
        admin = None  # without it the coordinator's own figures are left out
    if pattern is not None and settings.loadtest.workers > 1 and "{id}" not in pattern.certificate:
        raise ConfigError(
            f"{settings.loadtest.workers} workers cannot share {pattern.certificate}: a certificate carries "
            "its worker's id; write {id} in --network-tls-certificate and --network-tls-key"
        )
    yield Target(address, pattern, admin, settings.loadtest.pid)


def _pattern(network: NetworkSection) -> TlsPattern | None:
    files = TlsFiles.choose(network.tls_ca, network.tls_certificate, network.tls_key)
    return None if files is None else TlsPattern(str(files.ca), str(files.certificate), str(files.key))


@asynccontextmanager
async def started(loaded: "Loaded[LoadSettings]", folder: Path) -> AsyncIterator[Target]:
    """A coordinator of our own, gone afterwards with its store."""
    settings = loaded.settings
    if settings.network.tls_ca is not None:
        raise ConfigError(
            "--network-tls-* are for a coordinator that runs; --with-tls makes certificates here"
        )
    shutil.rmtree(folder / _RUN, ignore_errors=True)
    config = folder / "config.toml"
    config.write_text(render.to_toml(render.entries(loaded)), encoding="utf-8")
    command = ["coordinator", "--config", str(config), "--directory", str(folder), "--name", _RUN]
    pattern, admin = None, None
    if settings.loadtest.with_tls:
        pattern, admin, flags = await asyncio.to_thread(_certificates, settings, folder / "certs")
        command += flags
    async with Children(folder, 2 * Timeouts(settings.network.peer_loss).drain) as children:
        process = await children.start("coordinator", command, speaks=True)
        line = await children.first_line("coordinator", START_SECONDS)
        yield Target(line.split()[-1], pattern, admin, process.pid)
    if not settings.loadtest.keep:
        shutil.rmtree(folder / _RUN, ignore_errors=True)
        shutil.rmtree(folder / "certs", ignore_errors=True)


def _certificates(settings: "LoadSettings", folder: Path) -> tuple[TlsPattern, TlsFiles, list[str]]:
    """An authority, and a pair for everyone; flags for the coordinator."""
    try:
        from fedecado.common.certificates import issue, make_authority
    except ModuleNotFoundError as error:
        raise ConfigError(f"certificates need {error.name}; install 'fedecado[tls]'") from error
    shutil.rmtree(folder, ignore_errors=True)
    make_authority(folder)
    issue(folder, "coordinator", hosts=["127.0.0.1", "localhost"])
    load = settings.loadtest
    first = load.machine * load.workers
    for name in ("admin", *(f"{load.prefix}-{n}" for n in range(first, first + load.workers))):
        issue(folder, name)
    pattern = TlsPattern(str(folder / "ca.pem"), str(folder / "{id}.pem"), str(folder / "{id}.key"))
    own = pattern.files("coordinator")
    flags = ["--network-tls-ca", str(own.ca), "--network-tls-certificate", str(own.certificate)]
    return pattern, pattern.files("admin"), [*flags, "--network-tls-key", str(own.key)]
