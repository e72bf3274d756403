"""A process whose memory is capped: by a control group if one may be made, else by a limit on data."""

import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

LAUNCH = """
import os, resource, sys
group, limit, *command = sys.argv[1:]
if group:
    open(group, "w").write(str(os.getpid()))
else:
    resource.setrlimit(resource.RLIMIT_DATA, (int(limit), int(limit)))
os.execv(sys.executable, [sys.executable, *command])
"""
"""Caps itself, then becomes the command: all its memory is charged from the first page on."""


@dataclass(frozen=True)
class Cap:
    """A limit in bytes and how it is kept."""

    limit: int
    kind: Literal["group", "data"]
    group: Path | None = None

    def arguments(self, *command: str) -> list[str]:
        """What to give to Python."""
        procs = "" if self.group is None else str(self.group / "cgroup.procs")
        return ["-c", LAUNCH, procs, str(self.limit), *command]

    def peak(self) -> int | None:
        """Most bytes that were ever charged, page cache included, where the system tells."""
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            with suppress(OSError):
                return int((self.group or Path("/nowhere")).joinpath(name).read_text())
        return None


@contextmanager
def capped(limit: int) -> Iterator[Cap]:
    """A cap for one process; its group goes with it.

    A group counts file pages too, but the kernel takes those back before it kills, so mapped files do no
    harm; swap is ruled out. The limit on data counts what is private and writable, mapped files not.
    """
    group = _make_group(limit)
    try:
        yield Cap(limit, "data") if group is None else Cap(limit, "group", group)
    finally:
        if group is not None:
            _remove(group)


def _make_group(limit: int) -> Path | None:
    name = f"fedecado-test-{secrets.token_hex(4)}"
    for root, entries in (
        ("/sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")),
        ("/sys/fs/cgroup", ("memory.max", "memory.swap.max")),
    ):
        group = Path(root) / name
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / entries[0]).write_text(str(limit))
        except OSError:
            group.rmdir()
            continue
        with suppress(OSError):  # a kernel may not account for swap
            (group / entries[1]).write_text(str(limit) if "memsw" in entries[1] else "0")
        return group
    return None


def _remove(group: Path) -> None:
    """A failed test may have left its process in there."""
    for pid in (group / "cgroup.procs").read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    with suppress(OSError):  # it is not gone yet; an empty group does no harm
        group.rmdir()


def anonymous_bytes(pid: int) -> int:
    """Memory of a process that is not a copy of a file."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])
