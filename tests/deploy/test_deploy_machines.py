"""Plain machines: systemd, compose and fedecado understand what the units and the compose file say."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendering import DEPLOY

from fedecado.cli.coordinator import CoordinatorSettings
from fedecado.cli.worker import WorkerSettings
from fedecado.common.sections import Everything
from fedecado.common.settings import load

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
NAMES = [unit.name for unit in UNITS]
SETTINGS: dict[str, Any] = {"coordinator": CoordinatorSettings, "worker": WorkerSettings}
FILE = DEPLOY / "base" / "fedecado.toml"


def values(unit: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit.read_text("utf-8"), re.MULTILINE)


def instance(text: str) -> str:
    return text.replace("%i", "3").replace("%n", "fedecado.service")


@pytest.fixture
def installed(tmp_path: Path) -> list[str]:
    """The units as they would lie in /etc/systemd/system, on a machine where fedecado is /bin/true."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")
    for unit in UNITS:
        text = unit.read_text("utf-8").replace("/opt/fedecado/bin/fedecado", "/bin/true")
        (tmp_path / unit.name.replace("@", "@3")).write_text(text, "utf-8")
    return [str(path) for path in sorted(tmp_path.glob("*.service"))]


def analyze(*arguments: str) -> None:
    done = subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    ours = [line for line in done.stderr.splitlines() if "fedecado" in line]
    assert done.returncode == 0 and not ours, done.stdout + done.stderr


def test_systemd_understands_the_units(installed: list[str]) -> None:
    analyze("verify", "--man=no", "--recursive-errors=no", *installed)


def test_the_units_expose_little(installed: list[str]) -> None:
    """On systemd's scale from 0 to 100, where a service without any care has 96."""
    for unit in installed:
        analyze("security", "--offline=yes", "--no-pager", "--threshold=20", unit)


@pytest.mark.parametrize("unit", UNITS, ids=NAMES)
def test_fedecado_accepts_what_a_unit_says(unit: Path) -> None:
    (start,) = values(unit, "ExecStart")
    _, command, *rest = instance(start).split()
    words = iter(rest)
    flags = dict(zip(words, words, strict=True))
    assert flags.pop("--config") == "/etc/fedecado/fedecado.toml"
    env = dict(instance(line).split("=", 1) for line in values(unit, "Environment"))
    if command == "worker":
        env |= {"FEDECADO_WORKER__CLIENTS": "4", "FEDECADO_WORKER__COORDINATOR": "host:50051"}
        given = {"worker.id": flags.pop("--worker-id"), "worker.index": flags.pop("--index")}
    else:
        given = {}
    assert not flags
    read = load(SETTINGS[command], file=FILE, env=env, flags=given, known=Everything).settings
    assert read.network.tls() is not None
    names = {line.partition(":")[0] for line in values(unit, "LoadCredential")}
    assert {Path(value).name for value in env.values() if value.startswith("/run/credentials/")} == names


def test_the_coordinators_unit_owns_the_folder_of_the_runs() -> None:
    read = load(CoordinatorSettings, file=FILE, env={}, known=Everything).settings
    (state,) = values(DEPLOY / "systemd" / "fedecado-coordinator.service", "StateDirectory")
    assert f"/var/lib/{state}" == str(read.run.directory)


def fill(text: str, given: dict[str, str]) -> str:
    """Compose's substitution of variables, as far as it is used here."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: given.get(found[1], found[2]), text)


def test_fedecado_accepts_what_the_compose_file_says() -> None:
    given = {"COORDINATOR": "fl.example.org:50051", "INDEX": "1", "CLIENTS": "2"}
    compose = yaml.safe_load(fill((DEPLOY / "compose.yaml").read_text("utf-8"), given))
    for name, service in compose["services"].items():
        assert service["profiles"] == [name], "so that each machine starts its own part"
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        assert service["command"] == [name, "--config", "/etc/fedecado/fedecado.toml"]
        env = {key: str(value) for key, value in service["environment"].items()}
        read = load(SETTINGS[name], file=FILE, env=env, known=Everything).settings
        mounts = dict(volume.split(":")[1::-1] for volume in service["volumes"])
        assert {str(path) for path in tls_paths(read)} <= mounts.keys()
        assert mounts["/etc/fedecado/fedecado.toml"] == "./base/fedecado.toml"
        assert service["build"]["target"] == name
        if name == "worker":
            assert mounts["/etc/fedecado/tls/tls.pem"] == f"./certs/{read.worker.id}.pem"
        else:
            assert mounts[str(read.run.directory)] in compose["volumes"]
            assert service["ports"] == [f"{read.coordinator.bind.rpartition(':')[2]}:50051"]


def tls_paths(read: Any) -> list[Path]:
    tls = read.network.tls()
    return [tls.ca, tls.certificate, tls.key]


def test_runs_are_kept_where_every_deployment_expects_them() -> None:
    for file in DEPLOY.rglob("fedecado.toml"):
        assert tomllib.loads(file.read_text("utf-8"))["run"]["directory"] == "/var/lib/fedecado"
