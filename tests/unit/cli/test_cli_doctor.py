"""The doctor says ok, warn or fail about each thing, and what to do."""

import importlib
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections import namedtuple
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from fedecado.cli import checks, reach
from fedecado.cli.main import main
from fedecado.server.numerics import native


@pytest.fixture(autouse=True)
def _quiet_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("FEDECADO_") or name.endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture
def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def doctor(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, tuple[str, str]]]:
    code = main(["doctor", "--json", *argv])
    found = json.loads(capsys.readouterr().out)
    return code, {check["name"]: (check["level"], check["detail"]) for check in found}


def test_this_machine_is_fine(capsys: pytest.CaptureFixture[str], free_port: str) -> None:
    code, found = doctor(capsys, "--bind", free_port)
    assert code == 0
    assert {name: level for name, (level, _) in found.items() if level == "fail"} == {}
    assert found.keys() >= {"python", "packages", "torch", "torchvision", "configuration", "disk", "port"}
    assert "coordinator" not in found


def test_each_check_is_one_line_for_people(capsys: pytest.CaptureFixture[str], free_port: str) -> None:
    assert main(["doctor", "--bind", free_port]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(("ok    ", "warn  ")) for line in lines)
    assert f"ok    port: {free_port} is free to listen on" in lines


def test_a_wrong_configuration_fails_and_names_every_problem(
    capsys: pytest.CaptureFixture[str], free_port: str
) -> None:
    Path("fedecado.toml").write_text("[rounds]\nmin_updates = 0\n[training]\nrate = -1\n")
    code, found = doctor(capsys, "--bind", free_port)
    assert code == 1
    level, detail = found["configuration"]
    assert level == "fail"
    assert "rounds.min_updates" in detail
    assert "training.rate" in detail


def test_a_valid_configuration_is_named(tmp_path: Path) -> None:
    Path("mine.toml").write_text("[run]\ndirectory = 'elsewhere'\n")
    settings, check = checks.configuration(Path("mine.toml"))
    assert check == ("configuration", "ok", "mine.toml is valid")
    assert checks.disk(settings.run.directory).detail.endswith(str(tmp_path / "elsewhere"))


def test_a_port_in_use_fails_when_it_was_asked_for(
    capsys: pytest.CaptureFixture[str], free_port: str
) -> None:
    with socket.create_server(("127.0.0.1", int(free_port.rpartition(":")[2]))):
        assert reach.port(free_port, asked=True).level == "fail"
        check = reach.port(free_port, asked=False)
    assert check.level == "warn"
    assert "fine if your coordinator runs here" in check.detail
    assert reach.port("nonsense", asked=True).level == "fail"
    assert reach.port("unix:/run/x", asked=True).level == "ok"
    assert reach.port("127.0.0.1:0", asked=True).level == "ok"


def test_a_coordinator_is_checked_from_the_wire_upwards(coordinator: Any, moment: Timestamp) -> None:
    coordinator.status.software_version = metadata.version("fedecado")
    coordinator.status.started.CopyFrom(moment)
    found = list(reach.coordinator(coordinator.target))
    assert [(check.name, check.level) for check in found] == [
        ("coordinator", "ok"),
        ("health", "ok"),
        ("protocol", "ok"),
        ("clock", "ok"),
    ]


def test_an_older_coordinator_and_a_wrong_clock_are_warnings(coordinator: Any, moment: Timestamp) -> None:
    coordinator.status.software_version = "0.0.1"
    coordinator.status.open_round.opened.seconds = moment.seconds + 3600
    *_, protocol, clock = reach.coordinator(coordinator.target)
    assert protocol.level == clock.level == "warn"
    assert "0.0.1" in protocol.detail
    assert "ahead of this one; set both by NTP" in clock.detail


def test_a_coordinator_that_is_not_there_fails(
    coordinator: Any, capsys: pytest.CaptureFixture[str], free_port: str
) -> None:
    coordinator.stop()
    code, found = doctor(capsys, "--bind", free_port, "--coordinator", coordinator.target)
    assert code == 1
    assert found["coordinator"][0] == "fail"
    assert "Connection refused" in found["coordinator"][1]
    assert "health" not in found


def test_a_name_that_does_not_resolve_is_a_matter_of_dns(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    [check] = reach.coordinator("no-such-host:50051")
    assert check.detail == (
        "no-such-host has no address (Name or service not known); check the name and this machine's DNS"
    )


def test_something_else_that_listens_is_not_taken_for_a_coordinator(coordinator: Any) -> None:
    coordinator.refusal = (grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
    *_, last = reach.coordinator(coordinator.target)
    assert (last.name, last.level) == ("protocol", "fail")


@pytest.mark.parametrize(("serving", "code"), [(True, 0), (False, 1)])
def test_a_probe_tells_health_without_a_word(
    serving: bool, code: int, coordinator: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator.stop()
    coordinator.serving = serving
    coordinator.start()
    assert main(["doctor", "--probe", "--coordinator", coordinator.target]) == code
    assert capsys.readouterr() == ("", "")
    found = {check.name: check.level for check in reach.coordinator(coordinator.target)}
    assert found["health"] == ("ok" if serving else "warn")


def test_a_probe_of_nothing_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--probe", "--coordinator", "127.0.0.1:1"]) == 1
    assert capsys.readouterr() == ("", "")


def test_a_probe_imports_nothing_heavy(coordinator: Any) -> None:
    code = (
        "import sys; from fedecado.cli.main import main;"
        f"code = main(['doctor', '--probe', '--coordinator', '{coordinator.target}']);"
        "heavy = {'torch', 'numpy', 'pydantic', 'rich'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def failing(monkeypatch: pytest.MonkeyPatch, module: str, error: Exception) -> None:
    """Make `import module` raise."""
    real = importlib.import_module

    def load(name: str, package: str | None = None) -> ModuleType:
        if name == module:
            raise error
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", load)


def test_what_was_not_compiled_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    if (found := native.kernels()) is not None:
        assert checks.kernels() == ("compiled passes", "ok", f"for {found.level}")
    monkeypatch.setattr(native, "kernels", lambda: None)
    check = checks.kernels()
    assert check.level == "warn"
    assert "install a C compiler" in check.detail


def test_the_torchvision_mismatch_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "torchvision", RuntimeError("operator torchvision::nms does not exist"))
    check = checks.torchvision()
    assert check.level == "warn"
    assert "one of them is built for CPU and the other for CUDA" in check.detail
    assert "pip install" in check.detail


def test_packages_that_are_absent_or_broken_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "torch", ModuleNotFoundError("No module named 'torch'", name="torch"))
    assert checks.torch().level == "warn"
    failing(monkeypatch, "torch", OSError("libtorch.so:\n cannot open"))
    assert checks.torch() == (
        "torch",
        "fail",
        "does not load (OSError: libtorch.so: cannot open); install it again",
    )
    failing(monkeypatch, "torchvision", ModuleNotFoundError("torchvision", name="torchvision"))
    assert checks.torchvision().level == "ok"
    failing(monkeypatch, "torchvision", ModuleNotFoundError("PIL", name="PIL"))
    assert checks.torchvision().level == "warn"


@pytest.mark.parametrize(
    ("versions", "group", "level", "said"),
    [
        ({"grpcio": "1.20.0"}, "packages", "fail", "grpcio 1.20.0 is older than 1."),
        ({"grpcio": None}, "packages", "fail", "grpcio is not installed; run pip install -U fedecado"),
        ({"numpy": "3.0.0rc1"}, "packages", "warn", "numpy 3.0.0rc1 is newer than tried"),
        ({"torch": None}, "packages for workers", "warn", "pip install -U 'fedecado[client]'"),
        ({"torch": "2.6.0+cpu"}, "packages for workers", "ok", "torch 2.6.0+cpu"),
    ],
)
def test_versions_are_held_against_the_bounds_of_the_package(
    versions: dict[str, str | None], group: str, level: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = checks._version
    monkeypatch.setattr(checks, "_version", lambda name: versions[name] if name in versions else real(name))
    found = {check.name: check for check in checks.packages()}
    assert found[group].level == level
    assert said in found[group].detail


@pytest.mark.parametrize(("free", "level"), [(10**12, "ok"), (10**9, "warn"), (10**6, "fail")])
def test_disk_space_is_judged(free: int, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(free, 0, free))
    assert checks.disk(tmp_path / "not" / "yet").level == level


def test_a_run_folder_that_is_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    assert checks.disk(tmp_path / "runs").level == "fail"


@pytest.mark.parametrize(("limit", "level"), [(256, "warn"), (65536, "ok"), (resource.RLIM_INFINITY, "ok")])
def test_few_descriptors_are_a_warning(limit: int, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert checks.open_files().level == level


def test_an_old_python_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "metadata", lambda _: {"Requires-Python": ">=9.1"})
    assert checks.python().level == "fail"
