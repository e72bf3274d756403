"""What a stored run remembers for people, read without opening the run or touching a vector."""

from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from fedecado.server.store import records
from fedecado.server.store.codec import NOTE
from fedecado.server.store.loading import read_sound_head
from fedecado.server.store.schema import DATABASE, connect_to_read
from fedecado.server.store.trouble import explained


class StoredRun(NamedTuple):
    """The last checkpoint, and the coordinator's own notes since."""

    head: records.Head
    notes: list[dict[str, Any]]


def read_stored(folder: Path) -> StoredRun:
    """A run's folder as it stands; works beside a coordinator."""
    with explained(f"read {folder / DATABASE}"), closing(connect_to_read(folder)) as connection:
        connection.execute("BEGIN")  # both reads see the same moment
        head = read_sound_head(connection)
        events = records.read_events(connection, head.sequence)
        return StoredRun(head, [payload for kind, payload, _ in events if kind == NOTE])
