"""Named places where a test can have the process killed, to see what a crash leaves behind.

`FEDECADO_FAULT=name` kills at the first passage of that point, `name:3` at the third. Without the
variable a point costs one comparison.
"""

import os
import signal
from collections import Counter
from typing import Final

POINTS: Final = (
    "flow.before-write",
    "flow.half-written",
    "flow.written",
    "landing.half-written",
    "landing.synced",
    "landing.renamed",
    "vectors.before-write",
    "vectors.half-written",
    "vectors.written",
    "vectors.synced",
    "vectors.renamed",
    "folder.synced",
    "journal.before-commit",
    "journal.in-transaction",
    "journal.committed",
    "checkpoint.begun",
    "checkpoint.flows-synced",
    "checkpoint.before-flip",
    "checkpoint.in-transaction",
    "checkpoint.flipped",
    "unlink.before",
    "unlink.after",
)
"""Of a run that is written again and again."""

ONCE: Final = (
    "create.before-names",
    "migration.in-transaction",
    "export.model-written",
    "export.half-written",
    "export.before-rename",
)
"""Of what happens once: a folder is begun, brought to another format, exported."""

_wanted, _, _count = os.environ.get("FEDECADO_FAULT", "").partition(":")
_passed: Counter[str] = Counter()


def arm(name: str, passage: int = 1) -> None:
    """Have this process killed at a passage of `name`, as the environment variable would."""
    global _wanted, _count
    if name not in (*POINTS, *ONCE):
        raise ValueError(f"unknown fault point {name!r}; there are {', '.join((*POINTS, *ONCE))}")
    _wanted, _count = name, str(passage)
    _passed.clear()


def point(name: str) -> None:
    """Pass a point; SIGKILL if it is the one that was asked for."""
    if name != _wanted:
        return
    _passed[name] += 1
    if _passed[name] == int(_count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
