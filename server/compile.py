"""Compile the passes over long vectors, if there is a C compiler; without one numpy makes them.

hatchling runs this for every installation. `python server/compile.py` compiles again after a change.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "fedecado" / "server" / "numerics" / "native"
LIBRARY = FOLDER / "kernels.so"
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-Wall", "-Wextra")


def compiler() -> str | None:
    """The compiler that CC names, or the system's."""
    named = os.environ.get("CC", "").split()[:1] or ["cc", "gcc", "clang"]
    return next(filter(None, map(shutil.which, named)), None)


def compiled() -> str | None:
    """Make the library anew; what went wrong, if there is none then."""
    LIBRARY.unlink(missing_ok=True)
    if (cc := compiler()) is None:
        return "no C compiler found"
    # Beside its place first: a process that has the old one loaded keeps that.
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        made = Path(folder) / LIBRARY.name
        command = [cc, *FLAGS, str(FOLDER / "kernels.c"), "-o", str(made), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours
        if done.returncode:
            return f"{cc} failed: {done.stderr.strip() or done.returncode}"
        made.replace(LIBRARY)
    return None


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand
    pass
else:

    class KernelsHook(BuildHookInterface):  # type: ignore[misc] # it has no types here
        """Adds the library to a wheel, which is for this platform then, and for any Python."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            try:
                problem = compiled()
            except OSError as error:  # such as a source tree that cannot be written to
                problem = str(error)
            if problem:
                self.app.display_warning(f"long vectors are computed with numpy: {problem}")
                return
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


if __name__ == "__main__":
    sys.exit(compiled())
