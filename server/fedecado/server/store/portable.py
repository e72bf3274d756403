"""A run as a portable snapshot, and a new run from one.

A snapshot is a folder: `run.json` (what the run is and where it stood), `model.safetensors` (the newest
version, for any framework) and `state.safetensors` (the algorithm's own vectors and the clients').
Tasks under way are not part of it: they belong to the run, and a new run hands out its own.
"""

import itertools
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError, safe_open

from fedecado.common.errors import StoreError
from fedecado.common.layout import Layout, Vector
from fedecado.common.model_file import load_model, save_model
from fedecado.server.algorithms.vectors import RESPONSE
from fedecado.server.rounds import Engine
from fedecado.server.store import records
from fedecado.server.store.codec import from_json, to_json
from fedecado.server.store.faults import point
from fedecado.server.store.inspection import reading
from fedecado.server.store.interior import Held, held, restore
from fedecado.server.store.loading import Loaded, verify_all
from fedecado.server.store.opening import Recovered, flush_names, keeping, open_folder, require_empty
from fedecado.server.store.overlay import Overlay
from fedecado.server.store.recipe import Recipe
from fedecado.server.store.replay import Driver
from fedecado.server.store.retention import Retention
from fedecado.server.store.store import Store
from fedecado.server.store.tensors import write_tensors
from fedecado.server.store.trouble import explained
from fedecado.server.store.vault import Vault
from fedecado.server.store.vectors import FileVectors

FORMAT: Final = 1
_ALGORITHM, _CLIENT = "algorithm/", "client/"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where a snapshot stood."""

    run_id: str
    version: int
    round: int
    clients: int


def export(folder: Path, path: Path) -> Snapshot:
    """Write the run's newest state as a new folder; the run's own folder is only read."""
    if path.exists():
        raise StoreError(f"{path} exists; choose another name for the snapshot")
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    with explained(f"write the snapshot {path}"):
        aside.mkdir(parents=True, mode=0o700)
        try:
            with _newest(folder, aside / "scratch") as (loaded, clients):
                snapshot = _write(aside, loaded, clients)
            shutil.rmtree(aside / "scratch")
            point("export.before-rename")
            aside.rename(path)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return snapshot


def export_model(folder: Path, version: int | None, path: Path) -> int:
    """Write a version that is kept, or the checkpoint's, as a model file; which one it was."""
    with reading(folder) as opened:
        head = records.read_head(opened.connection)
        kept = records.read_models(opened.connection)
        if head is None or not kept:
            raise StoreError(f"the run in {folder} never began; it has no model")
        chosen = max(kept) if version is None else version
        if chosen not in kept:
            known = ", ".join(map(str, kept))
            raise StoreError(f"version {chosen} is not kept in {folder}; there are {known}")
        place = kept[chosen][1]
        opened.vault.verify(place)
        metadata = {"run_id": head.run_id, "version": str(chosen)}
        save_model(path, head.recipe.layout, opened.vault.map(place), metadata)
        return chosen


def create_from(
    snapshot: Path,
    folder: Path,
    wanted: Callable[[Layout], Recipe] | None = None,
    *,
    run_id: str = "",
    retention: Retention | None = None,
) -> Recovered:
    """A new run that begins where a snapshot stood: its model, flows, moments, time and clients.

    Versions count on; rounds begin anew. `wanted` may bring other rules and knobs.
    """
    saved = _read_json(snapshot)
    stored = Recipe.load(saved["recipe"])
    recipe = stored if wanted is None else wanted(stored.layout)
    recipe.require_same_run(stored)
    opened = open_folder(folder)
    with keeping(opened), explained(f"begin a run in {folder}"):
        require_empty(opened)
        vectors = FileVectors(opened.vault)
        algorithm = _read_state(snapshot, vectors)
        _, central, _ = load_model(snapshot / "model.safetensors")
        content = Held(saved["scalars"], algorithm, {int(saved["scalars"]["version"]): central}, {})
        engine = Engine.restore(recipe.rules, _fresh(saved["engine"]))
        federation = restore(recipe, engine, content, vectors)
        store = Store(
            opened, recipe, vectors, run_id=run_id or secrets.token_hex(6), retention=retention or Retention()
        )
        store.checkpoint(store.capture(federation, members=saved["members"]))
        flush_names(folder)
    return Recovered(store, Driver(federation), saved["members"])


@contextmanager
def _newest(folder: Path, scratch: Path) -> Iterator[tuple[Loaded, Overlay]]:
    """The run with its journal replayed; vectors that this changes go to `scratch`."""
    scratch.mkdir()
    with reading(folder) as opened:
        verify_all(opened.vault, records.needed_places(opened.connection))
        stored = records.read_clients(opened.connection)
        clients = Overlay(opened.vault, stored, FileVectors(Vault(scratch)))
        loaded = Loaded(opened.connection, opened.vault, clients)
        if loaded.driver.closed is not None:  # the crash came before the engine heard of it
            loaded.driver.handle(loaded.driver.closed.event)
        yield loaded, clients


def _write(target: Path, loaded: Loaded, clients: Overlay) -> Snapshot:
    federation = loaded.driver.federation
    content, head, engine = held(federation), loaded.head, federation.engine
    version = federation.version
    about = {"run_id": head.run_id, "version": str(version)}
    save_model(target / "model.safetensors", federation.layout, federation.central, about)
    point("export.model-written")
    names = clients.clients()
    sizes = {_ALGORITHM + name: (_dtype(v), v.size) for name, v in content.algorithm.items()}
    for name in names:
        if (vector := clients.get(name)) is not None:
            sizes[_CLIENT + name] = (_dtype(vector), vector.size)
    own = (vector for name in names if (vector := clients.get(name)) is not None)
    write_tensors(target / "state.safetensors", sizes, itertools.chain(content.algorithm.values(), own))
    text = to_json(
        {
            "format": FORMAT,
            "run_id": head.run_id,
            "recipe": loaded.recipe.dump(),
            "scalars": dict(content.scalars),
            "engine": engine.snapshot(),
            "members": head.members,
            "journal": head.journal,
        }
    )
    (target / "run.json").write_text(text)
    return Snapshot(head.run_id, version, engine.round, sum(not name.startswith(RESPONSE) for name in names))


def _fresh(engine: dict[str, Any]) -> dict[str, Any]:
    """An engine that knows the clients, whose vectors count, and has handed out nothing."""
    clients = [
        {**client, "connected": False, "task": None, "last_done": None, "asked": None, "resting": None}
        for client in engine["clients"]
    ]
    empty = {"tasks": [], "ready": [], "closing": [], "open": False, "late": False, "draws": 0}
    return {**engine, **empty, "clients": clients, "round": 0, "paused": False, "finished": None}


def _read_json(snapshot: Path) -> dict[str, Any]:
    path = snapshot / "run.json"
    with explained(f"read {path}"):
        saved: dict[str, Any] = from_json(path.read_text(), str(path))
    if saved.get("format") != FORMAT:
        raise StoreError(f"{path} has format {saved.get('format')!r}, this version reads {FORMAT}")
    return saved


def _read_state(snapshot: Path, clients: FileVectors) -> dict[str, Vector]:
    """The algorithm's vectors; the clients' go to their files one by one."""
    path, algorithm = snapshot / "state.safetensors", {}
    try:
        with safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118 - not a dict
                vector: Vector = file.get_tensor(name)
                if name.startswith(_CLIENT):
                    clients.put(name.removeprefix(_CLIENT), vector)
                else:
                    algorithm[name.removeprefix(_ALGORITHM)] = np.asarray(vector)
    except (OSError, SafetensorError) as error:
        raise StoreError(f"cannot read {path}: {error}; export the run again") from error
    return algorithm


def _dtype(vector: Vector) -> str:
    return vector.dtype.newbyteorder("<").str
