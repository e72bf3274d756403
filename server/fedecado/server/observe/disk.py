"""How much room a run takes and has left."""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Disk(NamedTuple):
    """In bytes."""

    used: int
    free: int


def measure(folder: Path) -> Disk | None:
    """Of a run's folder, or none while there is none; looks at every file, so not on the event loop."""
    if not folder.is_dir():
        return None
    used = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # replaced meanwhile
                used += (Path(place) / name).lstat().st_size
    return Disk(used, shutil.disk_usage(folder).free)
