"""Files and folders for their owner's eyes alone (modes 0600 and 0700)."""

import os
from pathlib import Path


def private_folder(path: Path) -> Path:
    """Make a folder that nobody else can look into; one that is there stays as it is."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def write_private(path: Path, content: bytes) -> None:
    """Written aside and renamed: a reader sees the old file or the new one, and nobody else either."""
    private_folder(path.parent)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)  # a file that was there keeps its mode otherwise
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    aside.replace(path)


def reserve_private(path: Path) -> None:
    """Make an empty file for a library that would create it with everyone's rights."""
    private_folder(path.parent)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
