"""The durable store of a run: after any crash it goes on where it stood.

A run's folder holds `store.sqlite` (the last checkpoint and the journal of events since), `vectors/`
(flat files) and `lock`.
"""

from fedecado.server.store.inspection import Kept, Listing, check, gc, listing
from fedecado.server.store.interior import Held, held
from fedecado.server.store.landing import Landing
from fedecado.server.store.memories import StoredRun, read_stored
from fedecado.server.store.opening import Recovered, create, has_run, recover, recover_as, set_aside
from fedecado.server.store.outcome import Outcome
from fedecado.server.store.portable import Snapshot, create_from, export, export_model
from fedecado.server.store.recipe import Recipe
from fedecado.server.store.replay import Closed, Driver, close, counts
from fedecado.server.store.rerun import Replayed, replay_run
from fedecado.server.store.retention import Retention
from fedecado.server.store.store import Capture, Store
from fedecado.server.store.vault import Flush, Flushed
from fedecado.server.store.vectors import FileVectors

__all__ = [
    "Capture",
    "Closed",
    "Driver",
    "FileVectors",
    "Flush",
    "Flushed",
    "Held",
    "Kept",
    "Landing",
    "Listing",
    "Outcome",
    "Recipe",
    "Recovered",
    "Replayed",
    "Retention",
    "Snapshot",
    "Store",
    "StoredRun",
    "check",
    "close",
    "counts",
    "create",
    "create_from",
    "export",
    "export_model",
    "gc",
    "has_run",
    "held",
    "listing",
    "read_stored",
    "recover",
    "recover_as",
    "replay_run",
    "set_aside",
]
