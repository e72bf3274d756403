"""A run's folder, open for writing: the journal of events, and checkpoints that shorten it.

The engine and the aggregation are deterministic, so the truth is the last checkpoint and the events
since. `append` and `capture` are cheap and belong to whoever drives the run; `commit` and `checkpoint`
wait for the disk and may run in another thread meanwhile.

Nothing that follows from an event may leave the process before `durable` has reached the event's
number: neither the acknowledgement of an update nor an assignment, or a worker could come back with
work that the run, after a crash, never handed out.
"""

import sqlite3
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final

from fedecado.common.errors import RoundError, StoreError
from fedecado.common.layout import DType, Vector
from fedecado.server.federation import Federation, Result
from fedecado.server.rounds import Event
from fedecado.server.store import history, records
from fedecado.server.store.codec import NOTE, RECIPE, encode_event, encode_result
from fedecado.server.store.faults import point
from fedecado.server.store.interior import held
from fedecado.server.store.landing import Landing
from fedecado.server.store.lock import RunLock
from fedecado.server.store.outcome import Outcome, input_digest, outcome_of
from fedecado.server.store.recipe import Recipe
from fedecado.server.store.replay import Closed
from fedecado.server.store.retention import Retention
from fedecado.server.store.schema import database_sizes, transaction
from fedecado.server.store.trouble import explained
from fedecado.server.store.vault import Draft, Flushed, Place, Vault, timed
from fedecado.server.store.vectors import FileVectors


@dataclass(frozen=True, slots=True)
class Capture:
    """A run at one moment between rounds: plain values, and vectors that nobody will change."""

    number: int
    head: records.Head
    algorithm: Mapping[str, Vector]
    versions: Mapping[int, Vector]
    clients: Mapping[str, Place | None]
    """Client vectors that no checkpoint holds yet; none for dropped ones."""
    drafts: tuple[Draft, ...]
    """Those of them that are still in memory only."""


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A capture's vectors that are on the disk, and that nothing refers to yet."""

    number: int
    versions: Mapping[int, Place]
    algorithm: Mapping[str, Place]

    @property
    def files(self) -> set[str]:
        places = *self.versions.values(), *self.algorithm.values()
        return {place.file for place in places if place.file is not None}


@dataclass(slots=True)
class _Row:
    kind: str
    payload: dict[str, Any]
    result: Result | None = None
    """Of an update that counts."""
    outcome: Outcome | None = None

    def described(self) -> dict[str, Any]:
        """The payload with the digests of what came in or was made; reads whole vectors."""
        if self.result is not None:
            scalars, landing = encode_result(self.result), self.result.landing
            crc = landing.crc if landing is not None and landing.finish() else None
            return {**self.payload, "result": scalars, "digest": input_digest(self.result, crc=crc)}
        return self.payload if self.outcome is None else {**self.payload, "outcome": self.outcome.dump()}


@dataclass(frozen=True, slots=True)
class Opened:
    """What a store writes with."""

    folder: Path
    lock: RunLock
    connection: sqlite3.Connection
    vault: Vault


@final
class Store:
    """Made by `create` or `recover`."""

    def __init__(
        self,
        opened: Opened,
        recipe: Recipe,
        vectors: FileVectors,
        *,
        run_id: str,
        sequence: int = 0,
        retention: Retention,
    ) -> None:
        self.folder, self.run_id, self.recipe, self.vectors = opened.folder, run_id, recipe, vectors
        self.durable = sequence
        """Events up to this number survive a crash."""
        self._opened, self._retention = opened, retention
        self._waiting: list[_Row] = []
        self._next = sequence + 1
        self._unsaved: dict[str, Draft | Place | None] = {}
        self._captured = self._written = self._transactions = 0
        self._ahead: _Ahead | None = None
        # Numbers of vectors that later checkpoints may refer to again.
        self._versions = records.stored_versions(opened.connection)
        self._updates = records.stored_updates(opened.connection)
        self._appending, self._writing = threading.Lock(), threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def nbytes(self) -> int:
        """Space that the run takes on disk."""
        return self._opened.vault.nbytes + sum(database_sizes(self.folder))

    @property
    def flushes(self) -> int:
        """How often the disk was waited for: files, folders, and each transaction once."""
        return self._opened.vault.flushes + self._transactions

    def append(self, event: Event, result: Result | None = None, outcome: Outcome | None = None) -> int:
        """Note an event that the engine has handled; its number.

        `result` if it is an update that counts, `outcome` if it tells the engine of a round.
        """
        return self._append(_Row(*encode_event(event), result, outcome))

    def outcome_of(self, federation: Federation, closed: Closed) -> Outcome | None:
        """What a round made, for `append`; ask before a later event touches the federation."""
        return outcome_of(federation, closed, self.vectors)

    def land(self, nbytes: int, dtype: DType) -> Landing | None:
        """Room for an update that is about to arrive, to be named in its result; none if it needs none."""
        try:
            return self._opened.vault.land("update", nbytes, dtype)
        except StoreError:
            return None  # the commit of the update says what is wrong

    def note(self, content: dict[str, Any]) -> int:
        """Put a note of the caller's own among the events; a recovery hands it back."""
        return self._append(_Row(NOTE, content))

    def change_recipe(self, recipe: Recipe) -> int:
        """Note that later events are handled under other rules or knobs."""
        recipe.require_same_run(self.recipe)
        self.recipe = recipe
        return self._append(_Row(RECIPE, recipe.dump()))

    def commit(self) -> int:
        """Make all that was appended durable: one flush for the vectors, one for the rows."""
        with self._writing:
            return self._commit()

    def capture(self, federation: Federation, *, members: Any = None, journal: Any = None) -> Capture:
        """The run as it stands, to be written by `checkpoint`; call it where events are handled."""
        engine = federation.engine
        if engine.closing:
            raise RoundError(f"round {engine.round} is being aggregated; take checkpoints between rounds")
        content = held(federation)
        with self._appending:
            self._unsaved |= self.vectors.take_changes()
            unsaved = dict(self._unsaved)
            self._captured += 1
        head = records.Head(
            sequence=self._next - 1,
            at=time.time(),
            run_id=self.run_id,
            recipe=self.recipe,
            engine=engine.snapshot(),
            scalars=dict(content.scalars),
            updates={task: encode_result(result) for task, result in content.updates.items()},
            members=members,
            journal=journal,
        )
        clients = {client: _place(change) for client, change in unsaved.items()}
        drafts = tuple(change for change in unsaved.values() if isinstance(change, Draft))
        return Capture(self._captured, head, content.algorithm, content.versions, clients, drafts)

    def settle(self, capture: Capture) -> None:
        """Put a capture's vectors on the disk ahead of its `checkpoint`, while commits go on."""
        places = (place for place in capture.clients.values() if place is not None)
        self._opened.vault.settle(places, capture.drafts)
        self._written_ahead(capture)

    def checkpoint(self, capture: Capture) -> None:
        """Write a capture, switch to it at one stroke, and remove what it made superfluous."""
        self.sweep(self.switch(capture))

    def switch(self, capture: Capture) -> list[str]:
        """Write a capture and switch to it at one stroke; files for `sweep`."""
        with self._writing:
            if capture.number <= self._written:
                raise StoreError("this capture or a newer one is written already; take a new one")
            self._commit()
            point("checkpoint.begun")
            self.settle(capture)
            self._opened.vault.sync_folder()
            point("checkpoint.flows-synced")
            files = self._flip(capture, self._written_ahead(capture))
            point("checkpoint.flipped")
            self._written, self._ahead = capture.number, None
            with self._appending:
                # What changed again meanwhile is for the next one.
                for client, place in capture.clients.items():
                    if _place(self._unsaved[client]) is place:
                        del self._unsaved[client]
        return files

    def sweep(self, files: list[str]) -> None:
        """Remove what a checkpoint made superfluous; commits go on, for a thousand files take seconds."""
        self._opened.vault.remove(files)

    def tell_flushes(self, flushed: Flushed) -> None:
        """From now on tell how long the disk takes."""
        self._opened.vault.flushed = flushed

    def close(self) -> None:
        """Leave the folder; what was not committed is lost. Idempotent."""
        with self._writing:
            self._opened.vault.close()
            self._opened.connection.close()
            self._opened.lock.close()

    def _timed(self) -> AbstractContextManager[None]:
        """Around a transaction: nearly all of its time is the flush at its end."""
        return timed(self._opened.vault.flushed, "database")

    def _append(self, row: _Row) -> int:
        with self._appending:
            self._waiting.append(row)
            self._next += 1
            return self._next - 1

    def _commit(self) -> int:
        with self._appending:
            rows, first = list(self._waiting), self._next - len(self._waiting)
        if not rows:
            return self.durable
        connection = self._opened.connection
        described = [row.described() for row in rows]
        results = {i: row.result for i, row in enumerate(rows) if row.result is not None}
        places = self._places(list(results.values()))
        if any(place.file is not None for place in places):
            self._opened.vault.sync_folder()
        point("journal.before-commit")
        with explained(f"write the journal of {self.folder}"), self._timed(), transaction(connection):
            numbers = dict(zip(results, records.add_vectors(connection, places), strict=True))
            stored = [
                (row.kind, text, numbers.get(i))
                for i, (row, text) in enumerate(zip(rows, described, strict=True))
            ]
            records.add_events(connection, first, stored)
            point("journal.in-transaction")
        self._transactions += 1
        point("journal.committed")
        # Only now: after a failure the rows are still waiting, and the next commit tries again.
        with self._appending:
            del self._waiting[: len(rows)]
            captured = self._captured > self._written
        self._updates |= {rows[i].payload["task"]: number for i, number in numbers.items()}
        if not captured:  # what was captured before a round closed has its updates
            for outcome in (row.outcome for row in rows if row.outcome is not None):
                for task in outcome.tasks:
                    self._updates.pop(task, None)
        self.durable = first + len(rows) - 1
        return self.durable

    def _places(self, results: list[Result]) -> list[Place]:
        """Where the vectors of results are: those that have not landed are written now."""
        vault = self._opened.vault
        there = [None if r.landing is None or not r.landing.done else vault.keep(r.landing) for r in results]
        missing = [r.state for r, place in zip(results, there, strict=True) if place is None]
        written = iter(vault.write("update", missing))
        return [next(written) if place is None else place for place in there]

    def _written_ahead(self, capture: Capture) -> _Ahead:
        """New versions, each in a file as it may be kept for long, and the algorithm's vectors in another."""
        ahead = self._ahead
        if ahead is None or ahead.number != capture.number:
            vault = self._opened.vault
            if ahead is not None and ahead.number < capture.number:
                vault.remove(ahead.files)  # it was given up, as when the journal could not be written
            new = {v: state for v, state in capture.versions.items() if v not in self._versions}
            versions = {version: vault.write("version", [state])[0] for version, state in new.items()}
            written = vault.write("state", list(capture.algorithm.values()))
            algorithm = dict(zip(capture.algorithm, written, strict=True))
            ahead = self._ahead = _Ahead(capture.number, versions, algorithm)
        return ahead

    def _flip(self, capture: Capture, ahead: _Ahead) -> list[str]:
        """One transaction; the files that nothing refers to after it."""
        head, connection = capture.head, self._opened.connection
        if missing := head.updates.keys() - self._updates.keys():
            raise StoreError(f"updates of tasks {sorted(missing)} count but were not appended to the journal")
        updates = {task: self._updates[task] for task in head.updates}
        point("checkpoint.before-flip")
        with explained(f"write a checkpoint of {self.folder}"), self._timed(), transaction(connection):
            added = records.add_vectors(connection, ahead.versions.values())
            fresh = dict(zip(ahead.versions, added, strict=True))
            numbers = {version: (self._versions | fresh)[version] for version in capture.versions}
            placed = records.add_vectors(connection, ahead.algorithm.values())
            records.write_state(connection, "version", {str(v): n for v, n in numbers.items()})
            records.write_state(connection, "algorithm", dict(zip(ahead.algorithm, placed, strict=True)))
            records.write_state(connection, "update", {str(t): n for t, n in updates.items()})
            records.change_clients(connection, capture.clients)
            records.write_head(connection, head)
            history.extend(connection, head, self._retention)
            newest = int(head.scalars["version"])
            records.keep_model(connection, newest, head.at, numbers[newest], self._retention.kept)
            files = records.forget_unused(connection)
            point("checkpoint.in-transaction")
        self._transactions += 1
        self._versions, self._updates = numbers, records.stored_updates(connection)
        return files


def _place(change: Draft | Place | None) -> Place | None:
    return change.place if isinstance(change, Draft) else change
