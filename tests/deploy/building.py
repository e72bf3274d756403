"""Build the images without a registry: on a base that debootstrap makes, with pip set up as it is outside."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from podman import NETWORK, Podman, Unusable

ROOT = Path(__file__).parents[2]
BASE = "localhost/fedecado-test-base:latest"
PACKAGES = "python3,python3-venv,ca-certificates"
SHARED = "project"
"""The stage of the Dockerfile that both images copy from."""
MINUTES = 60


def make_base(podman: Podman) -> None:
    """Debian with its Python, and nothing that can compile; a container of it runs."""
    if podman.run("image", "exists", BASE, check=False).returncode != 0:
        _bootstrap(podman)
    tried = podman.run("run", "--rm", "--network", NETWORK, BASE, "true", check=False)
    if tried.returncode != 0:
        raise Unusable(f"podman cannot run a container here: {tried.stderr.strip()}")


def _bootstrap(podman: Podman) -> None:
    tree = podman.folder / "base"
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(tree)]
    with timed("debootstrap"):
        done = subprocess.run(command, capture_output=True, text=True, timeout=15 * MINUTES, check=False)
    if done.returncode != 0:
        raise Unusable(f"debootstrap failed: {(done.stdout + done.stderr)[-500:].strip()}")
    archive = podman.folder / "base.tar"
    unused = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")
    without = [f"--exclude=./{path}/*" for path in unused]
    subprocess.run(
        ["tar", "-C", str(tree), *without, "-cf", str(archive), "."], timeout=5 * MINUTES, check=True
    )
    podman.run("import", str(archive), BASE, seconds=5 * MINUTES)
    archive.unlink()


def build(podman: Podman, *targets: str) -> dict[str, str]:
    """The names of the images; what they share is built once, the rest side by side."""
    arguments = ["--format", "docker", "--network", "host", "--build-arg", f"BASE={BASE}"]
    arguments += [*_pip(podman.folder), "--file", str(ROOT / "deploy" / "Dockerfile")]

    def make(target: str) -> tuple[str, str]:
        image = f"localhost/fedecado-{target}:test"
        with timed(f"build of {target}"):
            named = ("--target", target, "--tag", image)
            podman.show("build", *arguments, *named, str(ROOT), seconds=40 * MINUTES)
        return target, image

    make(SHARED)
    with ThreadPoolExecutor(len(targets)) as pool:
        return dict(pool.map(make, targets))


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say how long it took: the test is to stay quick enough for every change."""
    began = time.monotonic()
    yield
    print(f"==> {what}: {time.monotonic() - began:.0f} s", flush=True)


def _pip(scratch: Path) -> list[str]:
    """This machine's configuration of pip, as options of a build: a file, and the folders that it names."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    # One name may stand there twice, from a file and from the environment.
    given = dict(re.findall(r"^(?:\w+|:env:)\.([\w-]+)='(.*)'$", listing, re.MULTILINE))
    links = given.pop("find-links", "").replace("\\n", " ").split()
    wheels = [Path(folder) for folder in links if Path(folder).is_dir()]
    options = [f"--build-context=wheels={wheels[0]}"] if wheels else []
    if any(folder.glob("torch-*.whl") for folder in wheels[:1]):
        options.append("--build-arg=TORCH=")
    config = scratch / "pip.conf"
    config.write_text("\n".join(["[global]", *(f"{k} = {v}" for k, v in given.items())]), encoding="utf-8")
    # An index on disk has its files beside it.
    indexes = {Path(found).parent for found in re.findall(r"file://(/\S+)", " ".join(given.values()))}
    certificates = {Path(given["cert"])} if "cert" in given else set()
    mounts = {config: "/etc/pip.conf"} | {path: str(path) for path in indexes | certificates if path.exists()}
    return options + [f"--volume={path}:{inside}:ro" for path, inside in mounts.items()]
