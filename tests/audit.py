"""`make audit`: look packages up with pip-audit, and tell "nothing is known" from "nobody could be asked".

pip-audit itself ends with 1 for a vulnerability and for a service that it cannot reach, and with 0 where
each package was skipped. Here: 0 none known, 1 some known, 3 no service answered, 4 some packages were not
looked up.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FOUND, UNREACHABLE, INCOMPLETE = 1, 3, 4


def judge(report: str) -> tuple[int, list[str]]:
    """The exit code for pip-audit's JSON, which is empty if it gave up, and what to say."""
    packages: list[dict[str, Any]] = json.loads(report)["dependencies"] if report else []
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    lines = [
        f"{package['name']} {package['version']}: {found['id']}, fixed in {', '.join(found['fix_versions'])}"
        for package in packages
        for found in package.get("vulns", ())
    ]
    if lines:
        return FOUND, [*lines, f"{len(lines)} known vulnerabilities"]
    if len(skipped) == len(packages):
        return UNREACHABLE, ["not audited: no vulnerability service could be reached from here"]
    if skipped:
        return INCOMPLETE, [f"not audited, the service does not know them: {', '.join(skipped)}"]
    return 0, [f"{len(packages)} packages, no known vulnerabilities"]


def main(tool: str, requirements: str, *more: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        fixed = ["--disable-pip", "--no-deps", "--progress-spinner", "off", "--format", "json"]
        command = [tool, *fixed, "--output", str(report), "--requirement", requirements, *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        answered = report.exists()
        code, lines = judge(report.read_text("utf-8") if answered else "")
    if not answered and done.stderr:
        lines.append(f"pip-audit's last words: {done.stderr.strip().splitlines()[-1]}")
    print("\n".join(lines), file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
