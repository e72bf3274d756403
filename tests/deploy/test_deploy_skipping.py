"""Where no container can run, the image test says so: skipped by .ci/run, failed where it was asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

IMAGES = Path(__file__).with_name("test_deploy_images.py")


def tried(asked: str, tools: Path) -> tuple[int, str]:
    """Exit code and words of the image test on a machine that has these tools and no others."""
    command = [sys.executable, "-m", "pytest", "-n0", "-rs", "-k", "not_root", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, str(IMAGES)],
        env=os.environ | {"FEDECADO_IMAGES": asked, "PATH": str(tools), "COLUMNS": "400"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def install(folder: Path, script: str) -> Path:
    for name in ("podman", "runc", "debootstrap"):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize("asked", ["1", "auto"])
def test_without_podman_it_is_skipped_and_says_so(asked: str, tmp_path: Path) -> None:
    code, said = tried(asked, tmp_path)
    assert code == 0 and "2 skipped" in said, said
    assert "podman and runc and debootstrap not installed" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gets as far as to podman")
@pytest.mark.parametrize(("asked", "code"), [("auto", 0), ("1", 1)])
def test_a_podman_that_cannot_work_is_named_with_what_it_said(asked: str, code: int, tmp_path: Path) -> None:
    found, said = tried(asked, install(tmp_path, "echo no cgroups here >&2; exit 125"))
    assert found == code, said
    assert "no cgroups here" in said
    assert ("2 skipped" in said) is (asked == "auto")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gets as far as to podman")
def test_a_podman_whose_containers_would_not_find_each_other_is_skipped(tmp_path: Path) -> None:
    code, said = tried("auto", install(tmp_path, "echo '[{\"dns_enabled\": false}]'"))
    assert code == 0 and "2 skipped" in said, said
    assert "netavark aardvark-dns" in said
