"""Looking into a run's folder without running it: what is in it, is it sound, what can go."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedecado.common.errors import StoreError
from fedecado.server.store import records
from fedecado.server.store.loading import read_sound_head
from fedecado.server.store.lock import RunLock
from fedecado.server.store.opening import open_folder, sweep
from fedecado.server.store.schema import DATABASE, VECTORS, connect_to_read, database_sizes
from fedecado.server.store.store import Opened
from fedecado.server.store.trouble import explained
from fedecado.server.store.vault import Vault


@dataclass(frozen=True, slots=True)
class Kept:
    """A version kept for people."""

    version: int
    at: float
    nbytes: int


@dataclass(frozen=True, slots=True)
class Listing:
    """A run's folder in numbers."""

    run_id: str
    algorithm: str
    layout_digest: str
    parameters: int
    version: int
    """Of the last checkpoint, like `round`."""
    round: int
    checkpoint_at: float
    events: int
    """Since that checkpoint."""
    updates: int
    """Of those, updates that count."""
    clients: int
    """That have a vector of their own."""
    models: tuple[Kept, ...]
    database_bytes: int
    vector_bytes: int
    """Of all files of vectors."""
    unreferenced_bytes: int
    """Of those, what `gc` would remove."""


@contextmanager
def reading(folder: Path) -> Iterator[Opened]:
    """A folder that nobody writes to meanwhile."""
    if not (folder / DATABASE).is_file():
        raise StoreError(f"there is no run in {folder}: it has no {DATABASE}")
    lock = RunLock(folder, shared=True)
    try:
        with explained(f"read {folder / DATABASE}"), closing(connect_to_read(folder)) as connection:
            yield Opened(folder, lock, connection, Vault(folder / VECTORS))
    finally:
        lock.close()


def check(folder: Path) -> list[str]:
    """What is wrong with a run's folder; every checksum is verified."""
    problems: list[str] = []
    try:
        with reading(folder) as opened:
            problems += _database_problems(opened)
            for place in records.all_places(opened.connection):
                try:
                    opened.vault.verify(place)
                except StoreError as error:
                    problems.append(str(error))
    except StoreError as error:
        problems.append(str(error))
    return problems


def listing(folder: Path) -> Listing:
    """What is in a run's folder; works beside a coordinator."""
    with explained(f"read {folder / DATABASE}"), closing(connect_to_read(folder)) as connection:
        head = read_sound_head(connection)

        def count(query: str) -> int:
            return int(connection.execute(query).fetchone()[0])

        sizes = _sizes(folder / VECTORS)
        used = {place.file for place in records.all_places(connection)}
        return Listing(
            run_id=head.run_id,
            algorithm=head.recipe.algorithm,
            layout_digest=head.recipe.layout.digest,
            parameters=head.recipe.layout.parameters,
            version=int(head.scalars["version"]),
            round=int(head.engine["round"]),
            checkpoint_at=head.at,
            events=count("SELECT count(*) FROM events"),
            updates=count("SELECT count(vector) FROM events"),
            # No id has a slash; what is remembered of clients beside their flows has.
            clients=count("SELECT count(*) FROM clients WHERE instr(client, '/') = 0"),
            models=tuple(
                Kept(version, at, place.length)
                for version, (at, place) in records.read_models(connection).items()
            ),
            database_bytes=sum(database_sizes(folder)),
            vector_bytes=sum(sizes.values()),
            unreferenced_bytes=sum(size for name, size in sizes.items() if name not in used),
        )


def gc(folder: Path) -> int:
    """Remove files that nothing refers to; the bytes that this frees."""
    if not (folder / DATABASE).is_file():
        raise StoreError(f"there is no run in {folder}: it has no {DATABASE}")
    opened = open_folder(folder)
    try:
        with explained(f"clean {folder}"):
            read_sound_head(opened.connection)
            return sweep(opened)
    finally:
        opened.connection.close()
        opened.lock.close()


def _database_problems(opened: Opened) -> list[str]:
    answers = opened.connection.execute("PRAGMA integrity_check").fetchall()
    problems = [f"{DATABASE}: {answer}" for (answer,) in answers if answer != "ok"]
    if lost := records.lost_vectors(opened.connection):
        problems.append(f"{DATABASE}: {lost} references to vectors lead nowhere")
    head = records.read_head(opened.connection)
    if head is None:
        return [*problems, f"{DATABASE}: the run never began, it has no checkpoint"]
    rows: Any = records.read_events(opened.connection, head.sequence)
    try:
        for _ in rows:
            pass
    except StoreError as error:
        problems.append(f"{DATABASE}: {error}")
    return problems


def _sizes(folder: Path) -> dict[str, int]:
    """Files and their sizes; a coordinator may remove some while we look."""
    sizes = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        try:
            if path.is_file():
                sizes[path.name] = path.stat().st_size
        except FileNotFoundError:
            continue
    return sizes
