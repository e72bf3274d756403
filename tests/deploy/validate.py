"""Run the public validators over the Dockerfile and every variant of the manifests: `make lint-deploy`.

kubernetes-validate has no schema for custom resources (cert-manager, Prometheus operator) and lets them pass.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from rendering import ALL, DEPLOY

# The oldest release whose StatefulSets label pods with their ordinal, and the newest that the package knows.
VERSIONS = ("1.28", "")


def main(tools: Path) -> int:
    failed = [not run(tools / "hadolint", DEPLOY / "Dockerfile")]
    with tempfile.TemporaryDirectory() as scratch:
        files = []
        for rendered in ALL:
            file = Path(scratch) / f"{rendered.name.replace('/', '-')}.yaml"
            file.write_text(rendered.text, encoding="utf-8")
            files.append(file)
        for version in VERSIONS:
            chosen = ("-k", version) if version else ()
            failed.append(
                not run(tools / "kubernetes-validate", "--strict", "--no-warn", "--quiet", *chosen, *files)
            )
        options = [item for file in (*files, DEPLOY / "Dockerfile") for item in ("--file", file)]
        failed.append(not run(tools / "checkov", "--config-file", DEPLOY / "checkov.yaml", *options))
    return int(any(failed))


def run(tool: Path, *arguments: str | Path) -> bool:
    print(f"==> {tool.name}", flush=True)
    return subprocess.run([tool, *arguments], timeout=600, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
