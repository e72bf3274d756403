"""`make audit` tells what it found from what it could not ask."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

AUDIT = Path(__file__).parents[2] / "audit.py"
CLEAN = {"name": "six", "version": "1.16.0", "vulns": []}
BAD = {"name": "numpy", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
UNKNOWN = {"name": "torch", "skip_reason": "Dependency not found"}


def audit(folder: Path, packages: list[Any] | None, code: int) -> "subprocess.CompletedProcess[str]":
    """The script on a pip-audit that answers so; none: it writes no report."""
    tool = folder / "pip-audit"
    report = None if packages is None else json.dumps({"dependencies": packages, "fixes": []})
    tool.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, sys\n"
        f"report = {report!r}\n"
        "if report is not None:\n"
        "    pathlib.Path(sys.argv[sys.argv.index('--output') + 1]).write_text(report)\n"
        "print('no route to host', file=sys.stderr)\n"
        f"sys.exit({code})\n"
    )
    tool.chmod(0o700)
    command = [sys.executable, str(AUDIT), str(tool), "requirements.txt"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("packages", "theirs", "ours", "words"),
    [
        ([CLEAN], 0, 0, "1 packages, no known vulnerabilities"),
        ([CLEAN, BAD, UNKNOWN], 1, 1, "numpy 1.0: PYSEC-1, fixed in 1.1"),
        (None, 1, 3, "no vulnerability service could be reached"),
        ([UNKNOWN, UNKNOWN], 0, 3, "no vulnerability service could be reached"),
        ([CLEAN, UNKNOWN], 0, 4, "does not know them: torch"),
    ],
)
def test_each_outcome_has_its_exit_code(
    tmp_path: Path, packages: list[Any] | None, theirs: int, ours: int, words: str
) -> None:
    done = audit(tmp_path, packages, theirs)
    assert done.returncode == ours, done
    assert words in done.stdout + done.stderr


def test_where_nobody_answers_the_reason_is_passed_on(tmp_path: Path) -> None:
    assert "no route to host" in audit(tmp_path, None, 1).stderr
