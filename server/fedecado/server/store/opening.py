"""Beginning a run in a folder, and coming back to it after any end."""

import itertools
import os
import secrets
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedecado.common.errors import StoreError
from fedecado.common.layout import Layout, Vector
from fedecado.common.private_files import private_folder
from fedecado.server.federation import Federation
from fedecado.server.rounds import Aggregated, Discarded, Engine
from fedecado.server.store import records
from fedecado.server.store.faults import point
from fedecado.server.store.loading import Loaded, apply_recipe, verify_all
from fedecado.server.store.lock import RunLock
from fedecado.server.store.recipe import Recipe
from fedecado.server.store.replay import Driver
from fedecado.server.store.retention import Retention
from fedecado.server.store.schema import DATABASE, VECTORS, connect, connect_to_read
from fedecado.server.store.store import Opened, Store
from fedecado.server.store.trouble import explained
from fedecado.server.store.vault import INLINE_BYTES, Vault
from fedecado.server.store.vectors import FileVectors


@dataclass(frozen=True, slots=True)
class Recovered:
    """A run that goes on; timers have to be started anew (`rounds.timers`).

    The engine still takes the clients of before for connected: tell it `Disconnected` only of those who
    have not come back after a while. Told at once, it would close the open round without them.
    """

    store: Store
    driver: Driver
    members: Any = None
    """As the last checkpoint was given it, like `journal`."""
    journal: Any = None
    notes: list[dict[str, Any]] = field(default_factory=list)
    """Noted since that checkpoint, in order."""
    replayed: int = 0
    """Rows of the journal since that checkpoint."""
    drifted: int = 0
    """Replayed rounds that are not bit for bit what they were: another processor, or another numpy."""

    @property
    def federation(self) -> Federation:
        return self.driver.federation

    @property
    def engine(self) -> Engine:
        return self.driver.engine

    @property
    def pending(self) -> Aggregated | Discarded | None:
        """What the engine has to be told first: a round had closed."""
        return None if self.driver.closed is None else self.driver.closed.event


def has_run(folder: Path) -> bool:
    """Whether there is a run to recover."""
    if not (folder / DATABASE).is_file():
        return False
    with (
        explained(f"read {folder / DATABASE}"),
        closing(connect_to_read(folder, any_format=True)) as database,
    ):
        made = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'checkpoint'").fetchone()
        return made is not None and database.execute("SELECT 1 FROM checkpoint").fetchone() is not None


def create(
    folder: Path,
    recipe: Recipe,
    initial: Vector,
    *,
    run_id: str = "",
    retention: Retention | None = None,
    inline_bytes: int = INLINE_BYTES,
) -> Recovered:
    """Begin a run; it can be recovered from the moment this returns."""

    opened = open_folder(folder, inline_bytes)
    run_id = run_id or secrets.token_hex(6)
    with keeping(opened):
        require_empty(opened)
        vectors = FileVectors(opened.vault)
        engine, algorithm = Engine(recipe.rules), recipe.make_algorithm()
        federation = Federation(engine, algorithm, recipe.layout, initial, vectors)
        store = Store(opened, recipe, vectors, run_id=run_id, retention=retention or Retention())
        store.checkpoint(store.capture(federation))
        flush_names(folder)
    return Recovered(store, Driver(federation))


def recover(
    folder: Path,
    recipe: Recipe | None = None,
    *,
    retention: Retention | None = None,
    inline_bytes: int = INLINE_BYTES,
) -> Recovered:
    """The run as it was when its process ended; `recipe` may bring other rules and knobs from here on."""
    if not (folder / DATABASE).is_file():
        raise StoreError(f"there is no run in {folder}: it has no {DATABASE}")
    opened = open_folder(folder, inline_bytes)
    with keeping(opened), explained(f"recover the run in {folder}"):
        sweep(opened)
        verify_all(opened.vault, records.needed_places(opened.connection))
        vectors = FileVectors(opened.vault, records.read_clients(opened.connection))
        loaded = Loaded(opened.connection, opened.vault, vectors)
        head = loaded.head
        store = Store(
            opened,
            loaded.recipe,
            vectors,
            run_id=head.run_id,
            sequence=head.sequence + loaded.rows,
            retention=retention or Retention(),
        )
        if recipe is not None and recipe != loaded.recipe:
            store.change_recipe(recipe)
            apply_recipe(loaded.driver.federation, recipe)
            store.commit()
    return Recovered(
        store, loaded.driver, head.members, head.journal, loaded.notes, loaded.rows, loaded.drifted
    )


def recover_as(folder: Path, recipe: Callable[[Layout], Recipe], **how: Any) -> Recovered:
    """Recover a run and go on under the rules and knobs that are wanted now."""
    recovered = recover(folder, **how)
    wanted = recipe(recovered.federation.layout)
    if wanted != recovered.store.recipe:
        try:
            recovered.store.change_recipe(wanted)
            apply_recipe(recovered.federation, wanted)
            recovered.store.commit()
        except BaseException:
            recovered.store.close()
            raise
    return recovered


def set_aside(folder: Path) -> Path | None:
    """Give a run's folder another name, so that a new run may take its place; none if there is no run."""
    if not folder.exists():
        return None
    with explained(f"set {folder} aside"):
        number = next(n for n in itertools.count(1) if not folder.with_name(f"{folder.name}.{n}").exists())
        aside = folder.with_name(f"{folder.name}.{number}")
        RunLock(folder).close()  # not under a coordinator that is at work there
        folder.rename(aside)
    return aside


def open_folder(folder: Path, inline_bytes: int = INLINE_BYTES) -> Opened:
    """A folder that is ours alone, with its database up to date."""
    with explained(f"make the folder {folder}"):
        private_folder(private_folder(folder) / VECTORS)
    lock = RunLock(folder)
    try:
        return Opened(folder, lock, connect(folder), Vault(folder / VECTORS, inline_bytes))
    except BaseException:
        lock.close()
        raise


def require_empty(opened: Opened) -> None:
    """Raise if a run has begun here; what a creation that did not get far left behind is removed."""
    if (head := records.read_head(opened.connection)) is not None:
        raise StoreError(f"{opened.folder} holds the run {head.run_id}; recover it, or choose another folder")
    sweep(opened)


def sweep(opened: Opened) -> int:
    """Remove files that nothing refers to: torn ones, and those of a step that a crash cut off."""
    used = {place.file for place in records.all_places(opened.connection)}
    return opened.vault.remove(name for name in opened.vault.names() if name not in used)


class keeping:  # noqa: N801 - reads as the context it is
    """The folder stays open after the `with`, unless that failed."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._opened.connection.close()
            self._opened.lock.close()


def flush_names(folder: Path) -> None:
    """Make the new folder itself durable."""
    point("create.before-names")
    with explained(f"flush {folder}"):
        for path in (folder, folder.resolve().parent):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
