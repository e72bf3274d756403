"""Vectors on disk: raw little-endian numbers in flat files, or inside the database when they are short.

A short vector would pay for a file and its fsync many times what its bytes cost, so it travels in the
database's own transaction. Vectors that become durable together share one file and one fsync, and so do short
ones if they are many: a database writes them twice, to its log and from there, and takes long to forget them.
"""

import itertools
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from fedecado.common.checksum import crc32
from fedecado.common.errors import StoreError
from fedecado.common.layout import DType, Vector
from fedecado.server.store.faults import point
from fedecado.server.store.landing import PIECE, Landing
from fedecado.server.store.trouble import explained

INLINE_BYTES: Final = 64 << 10
"""Vectors up to this size live in the database,"""
INLINE_TOGETHER: Final = 1 << 19
"""unless those that are written at once come to more than this."""

LANDING_BYTES: Final = PIECE
"""Vectors from this size on go to the disk while they arrive."""

ASIDE: Final = ".part"
"""Ending of a file that is not whole yet."""

_PIECE: Final = 4 << 20
_LANDING_THREADS: Final = 2
"""Enough to keep a disk busy."""
_SYNC_THREADS: Final = 8
"""Flushes under way at once: a file system joins them, one after the other each would wait its turn."""


Flush = Literal["file", "folder", "database"]
Flushed = Callable[[Flush, float], None]
"""Told, in any thread, what was flushed and how many seconds that took."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a vector is, and how to tell that it is whole."""

    dtype: str
    length: int
    """In bytes."""
    crc: int
    file: str | None = None
    start: int = 0
    inline: bytes | None = None


@dataclass(slots=True)
class Draft:
    """A vector in memory that nobody changes, and the file that it will be in; see `Vault.settle`."""

    place: Place
    vector: Vector
    written: bool = False


class Vault:
    """The folder of a run's vectors; any thread may use it."""

    def __init__(self, folder: Path, inline_bytes: int = INLINE_BYTES) -> None:
        self.folder, self.inline_bytes, self.landing_bytes = folder, inline_bytes, LANDING_BYTES
        self.flushed: Flushed = lambda what, seconds: None
        used = (name.partition(".")[0].rpartition("-")[2] for name in self.names())
        self._numbers = itertools.count(1 + max((int(n, 16) for n in used if _is_hex(n)), default=0))
        self._nbytes = sum((folder / name).stat().st_size for name in self.names())
        self._counting = threading.Lock()
        self._unsettled: set[str] = set()
        """Files that were `put` and not flushed since."""
        self._landings: ThreadPoolExecutor | None = None
        self.flushes = 0
        """How often the disk was waited for."""

    @property
    def nbytes(self) -> int:
        """Space that all files here take."""
        return self._nbytes

    def _count(self, nbytes: int) -> None:
        with self._counting:
            self._nbytes += nbytes

    def names(self) -> list[str]:
        """Every file here, referenced or not."""
        with explained(f"list {self.folder}"):
            return sorted(path.name for path in self.folder.iterdir()) if self.folder.is_dir() else []

    def write(self, prefix: str, vectors: Sequence[Vector]) -> list[Place]:
        """Put the content of vectors on the disk; long or many ones in one new file, whole once it is named.

        The name itself is durable after `sync_folder`, which several files can share.
        """
        short = sum(vector.nbytes for vector in vectors if self.is_short(vector.nbytes))
        most = self.inline_bytes if short <= INLINE_TOGETHER else 0
        filed = [vector for vector in vectors if vector.nbytes > most]
        placed = iter(self._write_file(self._name(prefix), filed) if filed else ())
        return [next(placed) if vector.nbytes > most else self.inlined(vector) for vector in vectors]

    def land(self, prefix: str, nbytes: int, dtype: DType) -> Landing | None:
        """Room to receive a vector in that goes to the disk meanwhile; none if it is too short for that.

        Files are little-endian, so memory must be, too.
        """
        if nbytes < self.landing_bytes or self.is_short(nbytes) or sys.byteorder != "little":
            return None
        if self._landings is None:
            self._landings = ThreadPoolExecutor(_LANDING_THREADS, thread_name_prefix="landing")
        path = self.folder / (self._name(prefix) + ASIDE)
        with explained(f"write {path}"):
            return Landing(path, nbytes, dtype, self._landings, lambda open_: self._flush(open_, "file"))

    def keep(self, landing: Landing) -> Place:
        """The place of a vector that is on the disk; its name is durable after `sync_folder`."""
        name = landing.path.name.removesuffix(ASIDE)
        with explained(f"rename {landing.path}"):
            if landing.keep(self.folder / name):
                self._count(landing.vector.nbytes)
        return Place(_code(landing.vector), landing.vector.nbytes, landing.crc, name)

    def close(self) -> None:
        """Free the threads. Idempotent."""
        if self._landings is not None:
            self._landings.shutdown()

    def put(self, prefix: str, vector: Vector) -> Place:
        """Write a file of its own that may still be on its way to the disk; see `settle`."""
        name = self._name(prefix)
        return Place(_code(vector), vector.nbytes, self._put(name, vector), name)

    def draft(self, prefix: str, vector: Vector, crc: int) -> Draft:
        """Give a vector a file of its own without writing it yet; `crc` is its checksum."""
        vector.flags.writeable = False
        return Draft(Place(_code(vector), vector.nbytes, crc, self._name(prefix)), vector)

    def _put(self, name: str, vector: Vector) -> int:
        path, data = self.folder / name, _raw(vector)
        point("flow.before-write")
        with explained(f"write {path}"):
            try:
                with _created(path) as descriptor:
                    crc = _pour(descriptor, data, halfway="flow.half-written")
            except OSError:
                path.unlink(missing_ok=True)
                raise
        with self._counting:
            self._nbytes += len(data)
            self._unsettled.add(name)
        point("flow.written")
        return crc

    def settle(self, places: Iterable[Place], drafts: Iterable[Draft] = ()) -> None:
        """Write what was drafted, and put the content of files on the disk that were `put`; once each."""
        for draft in drafts:
            if not draft.written:
                self._put(str(draft.place.file), draft.vector)
                draft.written = True
        with self._counting:
            names = [name for place in places if (name := place.file) is not None and name in self._unsettled]
        if len(names) > 1:
            with ThreadPoolExecutor(min(_SYNC_THREADS, len(names))) as pool:
                list(pool.map(self._sync, names))
        elif names:
            self._sync(names[0])
        with self._counting:
            self._unsettled.difference_update(names)

    def is_short(self, nbytes: int) -> bool:
        """Whether such a vector lives in the database."""
        return nbytes <= self.inline_bytes

    def checksum(self, vector: Vector) -> int:
        """What the place of a vector would have as its checksum."""
        return crc32(_raw(vector))

    def inlined(self, vector: Vector) -> Place:
        """The place of a vector inside the database."""
        data = bytes(_raw(vector))
        return Place(_code(vector), len(data), crc32(data), inline=data)

    def map(self, place: Place) -> Vector:
        """The vector, read-only; a file's pages come into memory as they are touched, and may leave it."""
        if place.inline is not None:
            return np.frombuffer(place.inline, place.dtype)
        if place.length == 0:
            return np.empty(0, place.dtype)
        path = self._path(place)
        with explained(f"read {path}"), path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < place.start + place.length:
                raise StoreError(
                    f"{path} is cut short: it has {size} bytes and {place.start + place.length} are needed; "
                    "restore it from a backup"
                )
            skipped = place.start % mmap.ALLOCATIONGRANULARITY
            mapped = mmap.mmap(
                file.fileno(), place.length + skipped, access=mmap.ACCESS_READ, offset=place.start - skipped
            )
        count = place.length // np.dtype(place.dtype).itemsize
        return np.frombuffer(mapped, place.dtype, count, skipped)

    def verify(self, place: Place) -> None:
        """Raise unless the vector is there and has its checksum."""
        found = crc32(_raw(self.map(place)))
        if found != place.crc:
            where = "a vector in the database" if place.file is None else str(self._path(place))
            raise StoreError(
                f"{where} is damaged: its CRC-32 is {found:08x}, it was written with {place.crc:08x}; "
                "restore it from a backup"
            )

    def sync_folder(self) -> None:
        """Make the names of new files durable."""
        self._sync("")
        point("folder.synced")

    def remove(self, names: Iterable[str]) -> int:
        """Unlink files; the bytes that this frees. Mapped ones stay readable until they are let go."""
        freed = 0
        for name in names:
            path = self.folder / name
            with self._counting:
                self._unsettled.discard(name)
            point("unlink.before")
            with explained(f"remove {path}"):
                if path.is_file():
                    size = path.stat().st_size
                    path.unlink()
                    self._count(-size)
                    freed += size
            point("unlink.after")
        return freed

    def _write_file(self, name: str, vectors: list[Vector]) -> list[Place]:
        path, start = self.folder / name, 0
        places: list[Place] = []
        aside = path.with_name(name + ASIDE)
        point("vectors.before-write")
        with explained(f"write {path}"):
            try:
                with _created(aside) as descriptor:
                    for vector in vectors:
                        data = _raw(vector)
                        crc = _pour(descriptor, data, halfway="vectors.half-written")
                        places.append(Place(_code(vector), len(data), crc, name, start))
                        start += len(data)
                    point("vectors.written")
                    self._flush(descriptor, "file")
                point("vectors.synced")
                aside.rename(path)
            except OSError:
                aside.unlink(missing_ok=True)
                raise
        self._count(start)
        point("vectors.renamed")
        return places

    def _sync(self, name: str) -> None:
        path = self.folder / name
        with explained(f"flush {path}"):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._flush(descriptor, "file" if name else "folder")
            finally:
                os.close(descriptor)

    def _flush(self, descriptor: int, what: Flush) -> None:
        with timed(self.flushed, what):
            os.fsync(descriptor)
        with self._counting:
            self.flushes += 1

    def _name(self, prefix: str) -> str:
        return f"{prefix}-{next(self._numbers):08x}"

    def _path(self, place: Place) -> Path:
        return self.folder / str(place.file)


@contextmanager
def timed(flushed: Flushed, what: Flush) -> Iterator[None]:
    """Tell how long a flush took, if it came to its end."""
    began = time.perf_counter()
    yield
    flushed(what, time.perf_counter() - began)


class _created:  # noqa: N801 - reads as the context it is
    """A new file's descriptor for the time of a `with`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o600)
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _pour(descriptor: int, data: memoryview, halfway: str) -> int:
    """Write everything, and its CRC-32 on the way while the bytes are in the cache."""
    crc, size = 0, min(_PIECE, max(1, (len(data) + 1) // 2))
    for start in range(0, len(data), size):
        if start:
            point(halfway)
        piece = data[start : start + size]
        crc = crc32(piece, crc)
        while piece:
            piece = piece[os.write(descriptor, piece) :]
    return crc


def _code(vector: Vector) -> str:
    return vector.dtype.newbyteorder("<").str


def _raw(vector: Vector) -> memoryview:
    """The bytes of a vector, little-endian; not a copy where it is that already."""
    plain = np.ascontiguousarray(vector, vector.dtype.newbyteorder("<"))
    return plain.view(np.uint8).data if plain.size else memoryview(b"")


def _is_hex(text: str) -> bool:
    return bool(text) and all(digit in "0123456789abcdef" for digit in text)
