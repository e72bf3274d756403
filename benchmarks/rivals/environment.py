"""Virtual environments of rivals, made when they are first needed and kept in benchmarks/.envs."""

import subprocess
import venv
from pathlib import Path

from benchmarks.rivals.watch import RivalError

ENVIRONMENTS = Path(__file__).resolve().parent.parent / ".envs"
PATIENCE = 1800.0
"""Seconds for pip; ray is a large download."""


def environment(name: str, *packages: str) -> Path:
    """The `bin` folder of an environment with these packages."""
    folder = ENVIRONMENTS / name
    scripts, done = folder / "bin", folder / "installed.txt"
    if done.exists() and done.read_text().split() == list(packages):
        return scripts
    print(f"installing {', '.join(packages)} into {folder}")
    venv.create(folder, with_pip=True, clear=True)
    command: list[str | Path] = [
        scripts / "python",
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "-q",
        *packages,
    ]
    try:
        subprocess.run(command, check=True, timeout=PATIENCE, capture_output=True, text=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = str(error.stderr or error)[-500:]
        raise RivalError(f"pip could not install {' '.join(packages)}: {said}") from error
    done.write_text("\n".join(packages) + "\n")
    return scripts


def version(scripts: Path, package: str) -> str:
    """The installed version of a package."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    found = subprocess.run([scripts / "python", "-c", code], check=True, capture_output=True, text=True)
    return found.stdout.strip()
