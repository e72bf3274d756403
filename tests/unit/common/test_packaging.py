"""The shape of the distribution: a namespace over four roots, and who may import whom."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedecado

ROOT = Path(__file__).parents[3]
ROOTS = ("proto", "server", "client", "common")


def modules(folder: str) -> Iterator[Path]:
    yield from (path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts)


def imported(path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_fedecado_is_a_namespace_over_four_roots() -> None:
    assert fedecado.__file__ is None
    assert not any((ROOT / root / "fedecado" / "__init__.py").exists() for root in ROOTS)


def test_every_package_is_typed() -> None:
    for root in ROOTS:
        for package in (ROOT / root / "fedecado").iterdir():
            if package.is_dir() and package.name != "__pycache__":
                assert (package / "__init__.py").exists(), package
                assert (package / "py.typed").exists(), package


@pytest.mark.parametrize("folder", ["server/fedecado/server", "common/fedecado/common", "proto/fedecado"])
def test_torch_lives_in_the_client_alone(folder: str) -> None:
    for path in modules(folder):
        tops = {name.partition(".")[0] for name in imported(path)}
        assert not tops & {"torch", "torchvision"}, path
        assert not any(name.startswith("fedecado.client") for name in imported(path)), path


@pytest.mark.parametrize("part", ["numerics", "algorithms", "rounds"])
def test_the_core_knows_neither_network_nor_clock(part: str) -> None:
    for path in modules(f"server/fedecado/server/{part}"):
        tops = {name.partition(".")[0] for name in imported(path)}
        assert not tops & {"grpc", "asyncio", "time", "google"}, path


def test_numerics_use_numpy_and_scipy_and_what_keeps_their_threads_in_check() -> None:
    for path in modules("server/fedecado/server/numerics"):
        for name in imported(path):
            top = name.partition(".")[0]
            own = top in {"numpy", "scipy", "threadpoolctl", "fedecado"}
            assert own or top in sys.stdlib_module_names, (path, name)


def test_a_coordinator_process_never_imports_torch_nor_what_only_tls_needs() -> None:
    code = (
        "import sys, fedecado.cli.coordinator, fedecado.server.configure;"
        "import fedecado.server.coordinator.process;"
        "sys.exit(bool({'torch', 'sklearn', 'matplotlib', 'scipy', 'cryptography'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_torch_and_torchvision_are_capped_and_the_server_needs_neither() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(need.startswith("torch>=") and ",<" in need for need in extras["client"])
    assert any(need.startswith("torchvision>=") and ",<" in need for need in extras["vision"])
    assert not any(need.startswith("torch") for need in extras["server"])
