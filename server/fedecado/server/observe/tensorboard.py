"""Rounds and measurements as TensorBoard's event files; needs no TensorFlow and no torch."""

from pathlib import Path
from typing import final

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from fedecado.server.observe.scribe import Entry


@final
class TensorBoard:
    """One folder per run; a run that goes on adds a file to it."""

    def __init__(self, folder: Path) -> None:
        self._events = EventFileWriter(str(folder), flush_secs=10)

    def write(self, entry: Entry) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in entry.values.items()]
        self._events.add_event(Event(wall_time=entry.at, step=entry.step, summary=Summary(value=values)))

    def close(self, *, finished: bool) -> None:
        del finished  # its files have no place for it
        self._events.close()
