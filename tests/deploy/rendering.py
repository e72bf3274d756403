"""The manifests as kustomize renders them: base, overlays, and every component on top of the base."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPONENTS = sorted(path.name for path in (DEPLOY / "components").iterdir() if path.is_dir())
VARIANTS = (
    "base",
    "overlays/local",
    "overlays/production",
    *(f"with/{name}" for name in COMPONENTS),
    "with/all",
)

Object = dict[str, Any]
WORKLOADS = ("StatefulSet", "Deployment", "Job")
USER = 10001
SECRETS = {
    "fedecado-coordinator-tls": {"ca.crt", "tls.crt", "tls.key"},
    "fedecado-admin-token": {"admin.token"},
    "fedecado-worker-tls": {"ca.pem", "evaluator.pem", "evaluator.key"},
}
"""What deploy/README.md or cert-manager makes; beside these the workers' has a pair per worker."""


@dataclass(frozen=True)
class Rendered:
    """One variant: its text, made when it is first wanted, and its objects in Python."""

    name: str

    @cached_property
    def text(self) -> str:
        with tempfile.TemporaryDirectory() as scratch:
            return _render(self.name, Path(scratch))

    @cached_property
    def objects(self) -> list[Object]:
        return [found for found in yaml.safe_load_all(self.text) if found is not None]

    def of(self, *kinds: str) -> list[Object]:
        return [found for found in self.objects if found["kind"] in kinds]

    def the(self, kind: str, name: str) -> Object:
        (found,) = [found for found in self.of(kind) if found["metadata"]["name"] == name]
        return found

    def containers(self) -> Iterator[tuple[Object, Object]]:
        """Every container with its pod's spec."""
        for workload in self.of(*WORKLOADS):
            pod = workload["spec"]["template"]["spec"]
            yield from ((pod, container) for container in pod["containers"])


def kubectl() -> str | None:
    """The one installed beside this Python, for it is the version the tests were written with."""
    beside = Path(sys.executable).with_name("kubectl")
    return str(beside) if beside.is_file() else shutil.which("kubectl")


def _render(variant: str, scratch: Path) -> str:
    """Kustomize takes no component from outside of an overlay's tree, so the tree is copied and added to."""
    tree = scratch / "deploy"
    shutil.copytree(DEPLOY, tree)
    folder = tree / variant
    if variant.startswith("with/"):
        chosen = COMPONENTS if variant == "with/all" else [folder.name]
        folder.mkdir(parents=True)
        content = {"resources": ["../../base"], "components": [f"../../components/{name}" for name in chosen]}
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    tool = kubectl()
    assert tool is not None, "kubectl is not installed; make test installs it into .venv"
    done = subprocess.run(
        [tool, "kustomize", str(folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{variant}: {done.stderr}"
    assert not done.stderr, f"{variant}: {done.stderr}"
    return done.stdout


ALL = [Rendered(name) for name in VARIANTS]


def matches(selector: Object, labels: dict[str, str]) -> bool:
    """A label selector, with the operator that is used here."""
    wanted = (
        selector.get("matchLabels", {})
        if "matchLabels" in selector or "matchExpressions" in selector
        else selector
    )
    expressions = selector.get("matchExpressions", [])
    assert all(expression["operator"] == "In" for expression in expressions)
    return wanted.items() <= labels.items() and all(
        labels.get(expression["key"]) in expression["values"] for expression in expressions
    )


def pods(rendered: Rendered, selector: Object) -> list[Object]:
    templates = [workload["spec"]["template"] for workload in rendered.of(*WORKLOADS)]
    return [found for found in templates if matches(selector, found["metadata"]["labels"])]


def ports_of(pod: Object) -> dict[str, int]:
    return {
        port["name"]: port["containerPort"] for c in pod["spec"]["containers"] for port in c.get("ports", [])
    }


def variables(container: Object) -> dict[str, str]:
    """Environment as a container gets it; what the cluster fills in is filled in for pod 1."""
    filled = {
        "metadata.name": "fedecado-worker-1",
        "metadata.labels['apps.kubernetes.io/pod-index']": "1",
        "metadata.annotations['batch.kubernetes.io/job-completion-index']": "1",
    }
    found = {}
    for item in container.get("env", []):
        origin = item.get("valueFrom", {})
        if "resourceFieldRef" in origin:
            assert origin["resourceFieldRef"]["resource"] == "requests.cpu"
            found[item["name"]] = "1"  # rounded up from what is requested
        else:
            found[item["name"]] = (
                item["value"] if "value" in item else filled[origin["fieldRef"]["fieldPath"]]
            )
    return found
