"""The last finished update on disk until it is acknowledged, so that it survives the worker's own end.

One file per worker, for its owner alone: a mark, the length of a JSON header, a CRC-32 of all that
follows, the header, the raw vector. It is written aside, flushed and renamed, so it is whole or not there.

In place of the vector, an update in a compact format has its bytes and what they lack. Once that update has
counted, the file is renamed again and kept for what it lacks: the next update owes it.
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
from fedecado.common.formats import Bytes, Packed, packed_bytes
from fedecado.common.layout import Layout, Vector
from fedecado.common.names import COMPACT
from fedecado.v1.session_pb2 import Assign

logger = logging.getLogger(__name__)

_MARK: Final = b"fedspool1\n"
_PREFIX: Final = struct.Struct("<10sII")
_HEADER_BYTES: Final = 1 << 20
"""No header is as long; one that says so is none."""
_UNUSABLE: Final = (DataError, LayoutError, KeyError, TypeError, ValueError)
"""What a file that was damaged, or is of another time, raises."""


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
        self._owed = self._path.with_suffix(".owed")
        self._worker = worker
        self._lock = threading.Lock()
        self._task: int | None = None
        self._packed = False
        """Whether the update on disk is in a compact format."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._aside.unlink(missing_ok=True)  # of a process that died while it wrote
        except OSError as error:
            raise ConfigError(
                f"cannot use worker.spool = {folder}: {error.strerror}; choose another folder"
            ) from error

    def keep(self, run_id: str, layout: Layout, work: Training, trained: Trained) -> bool:
        """Put an update on disk in place of an older one; whether that worked, for it is not vital."""
        scalars = [part.name for part in fields(trained) if part.name not in ("state", "packed")]
        packed = trained.packed
        header = {
            "worker": self._worker,
            "run": run_id,
            "layout": layout.digest,
            "task": work.header.task_id,
            "version": work.header.model_version,
            "trained": {name: getattr(trained, name) for name in scalars},
        }
        if packed is not None:
            header["format"] = packed.format
        data = [_raw(trained.state)] if packed is None else [packed.payload.data, _raw(packed.missing)]
        with self._lock:
            try:
                self._write(json.dumps(header).encode(), data)
            except OSError as error:
                logger.warning(
                    "cannot keep the update of task %d in %s: %s; it would be lost with this process",
                    *(work.header.task_id, self._path, error.strerror),
                )
                return False
            self._task, self._packed = work.header.task_id, packed is not None
        return True

    def load(self, layout: Layout) -> Spooled | None:
        """What an earlier process left, if it is whole and fits; anything else is set aside."""
        with self._lock:
            try:
                spooled = self._read(self._path, layout)
            except FileNotFoundError:
                return None
            except OSError as error:
                logger.warning("cannot read %s: %s; it is left alone", self._path, error.strerror)
                return None
            except _UNUSABLE as error:
                self._set_aside(error)
                return None
            self._task, self._packed = spooled.work.header.task_id, spooled.outcome.packed is not None
        logger.info("task %d of an earlier process is still to be delivered", self._task)
        return spooled

    def owed(self, layout: Layout) -> tuple[str, Vector] | None:
        """What the last update in a compact format that counted lacks, and in which run."""
        try:
            with self._lock:
                found = self._read(self._owed, layout)
            return None if found.outcome.packed is None else (found.run_id, found.outcome.packed.missing)
        except FileNotFoundError:
            return None
        except (OSError, *_UNUSABLE) as error:
            logger.warning("what rounding took from earlier updates is lost: %s: %s", self._owed, error)
            return None

    def forget(self, task: int, *, counted: bool = False) -> None:
        """The update of a task has counted, or is no longer wanted."""
        with self._lock, suppress(OSError):
            if task != self._task:
                if counted:  # it could not be kept; what is there was paid with it
                    self._owed.unlink(missing_ok=True)
                return
            self._task = None
            if counted and self._packed:
                self._path.rename(self._owed)
            else:
                self._path.unlink(missing_ok=True)

    def _read(self, path: Path, layout: Layout) -> Spooled:
        with path.open("rb") as file:
            header, data = _parse(file.read(), layout)
        if header["worker"] != self._worker:
            raise DataError(f"it is of worker {header['worker']!r}, not {self._worker!r}")
        return _spooled(header, data, layout)

    def _write(self, header: bytes, data: list[memoryview]) -> None:
        crc = zlib.crc32(header)
        for part in data:
            crc = zlib.crc32(part, crc)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(self._aside, flags, 0o600), "wb", buffering=0) as file:  # noqa: PTH123 - a descriptor
                os.fchmod(file.fileno(), 0o600)
                begin = _PREFIX.pack(_MARK, len(header), crc) + header
                for part in (memoryview(begin), *data):
                    rest = part
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


def _parse(content: bytes, layout: Layout) -> tuple[dict[str, Any], memoryview]:
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
    return header, memoryview(content)[_PREFIX.size + length :]


def _spooled(header: dict[str, Any], data: memoryview, layout: Layout) -> Spooled:
    assign = Assign(task_id=header["task"], model_version=header["version"])
    state: Vector = np.empty(0, layout.dtype)  # of the start: its training is over
    work, packed = Training(assign, state, None), None
    if "format" in header:
        packed = _packed(header["format"], data, layout)
    else:
        state = _numbers(data, layout)
        layout.check(state, "its vector")
    return Spooled(header["run"], work, Trained(state=state, packed=packed, **header["trained"]))


def _packed(format: str, data: memoryview, layout: Layout) -> Packed:
    name = next((name for name in COMPACT if name == format), None)
    if name is None:
        raise DataError(f"its format is {format!r}, which this version does not know")
    length = packed_bytes(name, layout)
    payload: Bytes = np.frombuffer(data[:length], np.uint8)
    missing = _numbers(data[length:], layout)
    if len(payload) != length or len(missing) != layout.parameters:
        raise DataError(f"it has {len(data)} bytes, which is not an update of its layout in {name}")
    return Packed(name, payload, missing)


def _numbers(data: memoryview, layout: Layout) -> Vector:
    stored = np.frombuffer(data, np.dtype(layout.dtype).newbyteorder("<"))
    return stored.astype(layout.dtype, copy=False)


def _raw(vector: Vector) -> memoryview:
    plain = np.ascontiguousarray(vector, vector.dtype.newbyteorder("<"))
    return plain.view(np.uint8).data if plain.size else memoryview(b"")


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
