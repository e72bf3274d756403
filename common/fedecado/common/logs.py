"""Logging of a process: compact lines on standard error for people, or JSON for machines."""

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Literal

_TEXT = "%(asctime)s %(levelname)-7s %(message)s"
_HANDLER = "fedecado"


class _JsonLines(logging.Formatter):
    """One object per line, so that line-wise collectors keep a traceback in one piece."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def setup_logging(
    level: Literal["debug", "info", "warning", "error"] = "info", *, json: bool = False
) -> None:
    """Log fedecado from `level` and other libraries from warnings; a second call replaces the first."""
    # gRPC writes lines of its own about every connection; it reads this when it is first imported.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    handler = logging.StreamHandler(sys.stderr)
    handler.set_name(_HANDLER)
    handler.setFormatter(_JsonLines() if json else logging.Formatter(_TEXT, datefmt="%H:%M:%S"))
    root = logging.getLogger()
    for old in [old for old in root.handlers if old.get_name() == _HANDLER]:
        root.removeHandler(old)
    root.addHandler(handler)
    logging.getLogger("fedecado").setLevel(level.upper())
