"""Logging of a process: compact lines on standard error for people, or JSON for machines.

A line is about something: `log.info("...", extra=about(round=3, worker="w1"))`. In JSON all of it stands in
fields of its own, with what is the same for the whole process (`identify`); for people the ids are added
in brackets, so that one `grep worker=w1` finds everything about a worker.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, final

_TEXT = "%(asctime)s %(levelname)-7s %(message)s"
_HANDLER = "fedecado"
_FIELDS = "about"

IDS: Final = ("round", "worker", "task")
"""Shown to people, too; the run is the same in all lines of a process."""

_process: dict[str, Any] = {}


def about(**fields: Any) -> dict[str, Any]:
    """What a line is about, as the `extra` of a logging call."""
    return {_FIELDS: fields}


def identify(**fields: Any) -> None:
    """Name what all lines of this process are about from now on."""
    _process.update(fields)


@final
class Sparingly:
    """The level of lines that may come many times a second: info for one of them, debug for the others.

    After a rest as many more are info as there were seconds, up to `most`.
    """

    def __init__(self, most: int = 20) -> None:
        self._most, self._left, self._at = most, float(most), time.monotonic()

    def level(self) -> int:
        """That of a line that is due now."""
        now = time.monotonic()
        self._left, self._at = min(self._most, self._left + now - self._at), now
        if self._left < 1:
            return logging.DEBUG
        self._left -= 1
        return logging.INFO


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(record, _FIELDS, {})
    return fields


class _JsonLines(logging.Formatter):
    """One object per line, so that line-wise collectors keep a traceback in one piece."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_process,
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class _Lines(logging.Formatter):
    """Words, and the ids behind them."""

    def __init__(self) -> None:
        super().__init__(_TEXT, datefmt="%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        text, fields = super().formatMessage(record), _fields(record)
        ids = " ".join(f"{name}={fields[name]}" for name in IDS if name in fields)
        return f"{text} [{ids}]" if ids else text


def setup_logging(
    level: Literal["debug", "info", "warning", "error"] = "info", *, json: bool = False
) -> None:
    """Log fedecado from `level` and other libraries from warnings; a second call replaces the first."""
    # gRPC writes lines of its own about every connection; it reads this when it is first imported.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    handler = logging.StreamHandler(sys.stderr)
    handler.set_name(_HANDLER)
    handler.setFormatter(_JsonLines() if json else _Lines())
    root = logging.getLogger()
    for old in [old for old in root.handlers if old.get_name() == _HANDLER]:
        root.removeHandler(old)
    root.addHandler(handler)
    logging.getLogger("fedecado").setLevel(level.upper())
