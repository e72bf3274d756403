"""Podman with storage, settings and a network of its own, so that nothing is left on the machine."""

import json
import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

NETWORK = "fedecado-test"

# Modest limits: a machine that allows less than a container asks for refuses to start it.
_CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=1024:4096", "nproc=2048:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


class Unusable(Exception):  # noqa: N818 - of the machine, not of what is tested
    """No container can be run here, whatever is in it."""


def why_not() -> str | None:
    """Why containers cannot be tried here."""
    missing = [tool for tool in ("podman", "runc", "debootstrap") if shutil.which(tool) is None]
    if missing:
        return (
            f"{' and '.join(missing)} not installed (Debian: podman runc debootstrap netavark aardvark-dns)"
        )
    return None if os.geteuid() == 0 else "debootstrap needs root"


@dataclass(frozen=True)
class Podman:
    """Runs podman with everything it keeps under `folder`."""

    folder: Path

    def setup(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "containers.conf").write_text(_CONTAINERS_CONF, encoding="utf-8")
        (self.folder / "networks").mkdir(exist_ok=True)
        if self.run("network", "exists", NETWORK, check=False).returncode != 0:
            made = self.run("network", "create", NETWORK, check=False)
            if made.returncode != 0:
                raise Unusable(f"podman cannot work here: {made.stderr.strip()}")
        # Without a name service containers wait for each other until somebody's patience ends.
        if not json.loads(self.run("network", "inspect", NETWORK).stdout)[0]["dns_enabled"]:
            raise Unusable("podman's networks know no names here (Debian: netavark aardvark-dns)")

    def run(
        self, *arguments: str, seconds: float = 120, check: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [*self._command(), *arguments],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert not check or done.returncode == 0, f"podman {arguments}: {done.stdout}{done.stderr}"
        return done

    def show(self, *arguments: str, seconds: float) -> None:
        """Run with the output left to the terminal: builds take minutes, and tell how far they are."""
        subprocess.run([*self._command(), *arguments], env=self._environment(), timeout=seconds, check=True)

    def wrapper(self) -> str:
        """A program that is this podman, for tools that call it themselves."""
        script = self.folder / "podman"
        config = self.folder / "containers.conf"
        words = shlex.join(["env", f"CONTAINERS_CONF={config}", *self._command()])
        script.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        return str(script)

    def cleanup(self) -> None:
        self.run("rm", "--all", "--force", "--time", "1", check=False)
        self.run("network", "rm", "--force", NETWORK, check=False)
        # The images go with the folder: podman takes a minute over them, and Python half of one.
        if (rm := shutil.which("rm")) is None:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            subprocess.run([rm, "-rf", "--one-file-system", str(self.folder)], timeout=300, check=False)

    def _command(self) -> list[str]:
        places = {
            "--root": "storage",
            "--runroot": "run",
            "--tmpdir": "tmp",
            "--network-config-dir": "networks",
        }
        return [
            "podman",
            *(word for flag, name in places.items() for word in (flag, str(self.folder / name))),
        ]

    def _environment(self) -> dict[str, str]:
        return os.environ | {"CONTAINERS_CONF": str(self.folder / "containers.conf")}
