"""The last finished update on disk until it is acknowledged, so that it survives the worker's own end.

One file per worker, for its owner alone: a mark, the length of a JSON header, a CRC-32 of all that
follows, the header, the raw vector. It is written aside, flushed and renamed, so it is whole or not there.
"""

import json
import logging
import os
import struct
import threading
import zlib
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import quote

import numpy as np

from fedecado.client.work import Trained, Training
from fedecado.common.errors import ConfigError, DataError, LayoutError
from fedecado.common.layout import Layout, Vector
from fedecado.v1.session_pb2 import Assign

logger = logging.getLogger(__name__)

_MARK: Final = b"fedspool1\n"
_PREFIX: Final = struct.Struct("<10sII")
_HEADER_BYTES: Final = 1 << 20
"""No header is as long; one that says so is none."""


@dataclass(frozen=True, slots=True, eq=False)
class Spooled:
    """An update of an earlier process, as if it had just been made."""

    run_id: str
    work: Training
    outcome: Trained


@final
class Spool:
    """`keep` is for the thread that trains, `forget` for the one that talks."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._path = folder / f"{quote(worker, safe='@:')}.update"
        self._aside = self._path.with_name(f".{self._path.name}.part")
        self._worker = worker
        self._lock = threading.Lock()
        self._task: int | None = None
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._aside.unlink(missing_ok=True)  # of a process that died while it wrote
        except OSError as error:
            raise ConfigError(
                f"cannot use worker.spool = {folder}: {error.strerror}; choose another folder"
            ) from error

    def keep(self, run_id: str, layout: Layout, work: Training, trained: Trained) -> bool:
        """Put an update on disk in place of an older one; whether that worked, for it is not vital."""
        about = {part.name: getattr(trained, part.name) for part in fields(trained) if part.name != "state"}
        header = {
            "worker": self._worker,
            "run": run_id,
            "layout": layout.digest,
            "task": work.header.task_id,
            "version": work.header.model_version,
            "trained": about,
        }
        with self._lock:
            try:
                self._write(json.dumps(header).encode(), _raw(trained.state))
            except OSError as error:
                logger.warning(
                    "cannot keep the update of task %d in %s: %s; it would be lost with this process",
                    *(work.header.task_id, self._path, error.strerror),
                )
                return False
            self._task = work.header.task_id
        return True

    def load(self, layout: Layout) -> Spooled | None:
        """What an earlier process left, if it is whole and fits; anything else is set aside."""
        with self._lock:
            try:
                with self._path.open("rb") as file:
                    header, state = _read(file.read(), layout)
                if header["worker"] != self._worker:
                    raise DataError(f"it is of worker {header['worker']!r}, not {self._worker!r}")
                spooled = _spooled(header, state)
            except FileNotFoundError:
                return None
            except OSError as error:
                logger.warning("cannot read %s: %s; it is left alone", self._path, error.strerror)
                return None
            except (DataError, LayoutError, KeyError, TypeError, ValueError) as error:
                self._set_aside(error)
                return None
            self._task = spooled.work.header.task_id
        logger.info("task %d of an earlier process is still to be delivered", self._task)
        return spooled

    def forget(self, task: int) -> None:
        """The update of a task is delivered, or no longer wanted."""
        with self._lock:
            if task == self._task:
                self._task = None
                with suppress(OSError):
                    self._path.unlink(missing_ok=True)

    def _write(self, header: bytes, data: memoryview) -> None:
        crc = zlib.crc32(data, zlib.crc32(header))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(self._aside, flags, 0o600), "wb", buffering=0) as file:  # noqa: PTH123 - a descriptor
                os.fchmod(file.fileno(), 0o600)
                for part in (_PREFIX.pack(_MARK, len(header), crc), header, data):
                    rest = memoryview(part)
                    while rest:
                        rest = rest[file.write(rest) or 0 :]
                os.fsync(file.fileno())
            self._aside.rename(self._path)
            _flush(self._path.parent)
        except OSError:
            with suppress(OSError):
                self._aside.unlink(missing_ok=True)
            raise

    def _set_aside(self, error: Exception) -> None:
        aside = self._path.with_suffix(".unusable")
        with suppress(OSError):
            self._path.rename(aside)
        logger.warning("an update of an earlier process cannot be delivered: %s; it is now %s", error, aside)


def _read(content: bytes, layout: Layout) -> tuple[dict[str, Any], Vector]:
    if len(content) < _PREFIX.size:
        raise DataError(f"its file has {len(content)} bytes only")
    mark, length, crc = _PREFIX.unpack_from(content)
    if mark != _MARK or length > _HEADER_BYTES:
        raise DataError("its file is something else")
    if zlib.crc32(memoryview(content)[_PREFIX.size :]) != crc:
        raise DataError("its file is damaged or was not written to its end")
    header = json.loads(content[_PREFIX.size : _PREFIX.size + length])
    if header["layout"] != layout.digest:
        raise DataError(f"its layout is {header['layout'][:12]}, the task's is now {layout.digest[:12]}")
    stored = np.dtype(layout.dtype).newbyteorder("<")
    state = np.frombuffer(content, stored, offset=_PREFIX.size + length)
    layout.check(state, "its vector")
    return header, state.astype(layout.dtype, copy=False)


def _spooled(header: dict[str, Any], state: Vector) -> Spooled:
    assign = Assign(task_id=header["task"], model_version=header["version"])
    empty = np.empty(0, state.dtype)  # its training is over
    return Spooled(header["run"], Training(assign, empty, None), Trained(state=state, **header["trained"]))


def _raw(vector: Vector) -> memoryview:
    plain = np.ascontiguousarray(vector, vector.dtype.newbyteorder("<"))
    return plain.view(np.uint8).data if plain.size else memoryview(b"")


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
