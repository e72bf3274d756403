"""The container images, built and run by podman as the manifests run them. `make test-images` asks for this.

FEDECADO_IMAGES=1 builds in a temporary folder. A path instead of the 1 is kept, and the next build quick.
With `auto`, as .ci/run has it, a machine whose podman cannot run any container skips this and says why.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from building import build, make_base, timed
from podman import NETWORK, Podman, Unusable, why_not
from rendering import DEPLOY, ROOT

from fedecado.common.certificates import issue, make_authority

ASKED = os.environ.get("FEDECADO_IMAGES", "")
WANTED = ASKED not in ("", "0")
KEPT = None if ASKED in ("1", "auto") else Path(ASKED)
USER = 10001
# As an operator would run them: nothing may be written but what is said here.
LOCKED = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "all", "--security-opt", "no-new-privileges")  # noqa: S108
PATIENCE = 300.0

pytestmark = [
    pytest.mark.skipif(not WANTED, reason="building images takes minutes; make test-images does it"),
    pytest.mark.skipif(WANTED and why_not() is not None, reason=why_not() or ""),
    pytest.mark.timeout(5400),
]


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    found = Podman(KEPT or tmp_path_factory.mktemp("podman"))
    try:
        try:
            found.setup()
            make_base(found)
        except Unusable as error:
            if ASKED == "auto":
                pytest.skip(str(error))
            raise
        yield found
    finally:
        if KEPT is None:
            found.cleanup()


@pytest.fixture(scope="module")
def built(podman: Podman) -> dict[str, str]:
    with timed("both images"):
        return build(podman, "coordinator", "worker")


@pytest.fixture(scope="module")
def coordinator(built: dict[str, str]) -> str:
    return built["coordinator"]


@pytest.fixture(scope="module")
def worker(built: dict[str, str]) -> str:
    return built["worker"]


@pytest.fixture(params=["coordinator", "worker"])
def image(request: pytest.FixtureRequest) -> str:
    name: str = request.getfixturevalue(request.param)
    return name


@pytest.fixture
def started(podman: Podman) -> Iterator[Any]:
    """`started(name, image, *arguments, options=...)` runs a container that is gone after the test."""
    names = []

    def start(name: str, image: str, *arguments: str, options: tuple[str, ...] = ()) -> None:
        names.append(name)
        fixed = ("--detach", "--name", name, "--network", NETWORK, *LOCKED)
        podman.run("run", *fixed, *options, image, *arguments)

    yield start
    for name in names:
        print(f"--- {name}", podman.run("logs", name, check=False).stderr, sep="\n")
    podman.run("rm", "--force", "--ignore", "--time", "1", *names)
    podman.run("volume", "prune", "--force")


def inside(podman: Podman, image: str, *command: str) -> str:
    """What a command in a container of its own says, whether or not it succeeds."""
    entry, *rest = command
    done = podman.run("run", "--rm", *LOCKED, "--entrypoint", entry, image, *rest, check=False)
    return done.stdout + done.stderr


def inspect(podman: Podman, what: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(podman.run(what, "inspect", name).stdout)[0]
    return found


def until_healthy(podman: Podman, name: str) -> None:
    """Podman has no event to wait for without systemd, so it is asked again and again."""
    deadline = time.monotonic() + PATIENCE
    while podman.run("healthcheck", "run", name, check=False).returncode != 0:
        assert time.monotonic() < deadline, podman.run("logs", name).stderr
        time.sleep(0.2)


def give_to_user(folder: Path) -> None:
    """Keys are readable for their owner alone, who is another one in the containers."""
    for file in folder.glob("*.*"):
        os.chown(file, USER, USER)


def test_processes_are_not_root(podman: Podman, image: str) -> None:
    assert inside(podman, image, "id", "-u").split()[0] == str(USER)
    assert inspect(podman, "image", image)["Config"]["User"] == f"{USER}:{USER}", (
        "a number, for Kubernetes to see"
    )


def test_nothing_can_compile(podman: Podman, image: str) -> None:
    tools = "for tool in cc gcc g++ clang ld as make pip; do command -v $tool; done; echo none"
    assert inside(podman, image, "sh", "-c", tools).split("\n")[0] == "none"


def test_what_is_compiled_was_compiled_on_the_way(podman: Podman, coordinator: str) -> None:
    look = "from fedecado.server.numerics.native import kernels; print(kernels() is not None)"
    assert inside(podman, coordinator, "python", "-c", look).startswith("True")


def test_only_its_own_folder_can_be_written(podman: Podman, coordinator: str) -> None:
    script = "touch /opt/fedecado/x; touch /etc/x; touch /var/lib/fedecado/x && echo written"
    said = inside(podman, coordinator, "sh", "-c", script)
    assert said.count("Read-only file system") == 2 and "written" in said


def test_the_coordinator_has_no_torch_and_is_small(podman: Podman, coordinator: str, worker: str) -> None:
    look = ("python", "-c", "import importlib.util as u; print(u.find_spec('torch') is None)")
    assert inside(podman, coordinator, *look).startswith("True")
    assert inside(podman, worker, *look).startswith("False")
    sizes = {name: inspect(podman, "image", name)["Size"] / 1e6 for name in (coordinator, worker)}
    print({name: f"{size:.0f} MB" for name, size in sizes.items()})
    assert sizes[coordinator] < 480
    assert sizes[worker] < 1600, "CPU builds of torch are this small; CUDA takes several GB"


def test_images_say_what_they_are(podman: Podman, image: str) -> None:
    found = inspect(podman, "image", image)
    config = found["Config"]
    assert config["Labels"]["org.opencontainers.image.title"] == "fedecado"
    assert config["Entrypoint"] == ["fedecado"], "and no shell before it"
    assert config["StopSignal"] == "SIGTERM"
    assert found["Healthcheck"]["Test"] == ["CMD", "fedecado", "doctor", "--probe"]


def test_two_containers_complete_rounds_over_mutual_tls_and_the_model_stays(
    podman: Podman, coordinator: str, worker: str, started: Any, tmp_path: Path
) -> None:
    make_authority(tmp_path)
    issue(tmp_path, "coordinator", hosts=["coordinator"])
    issue(tmp_path, "worker-0")

    give_to_user(tmp_path)

    def tls(name: str) -> tuple[str, ...]:
        parts = {"CA": "ca.pem", "CERTIFICATE": f"{name}.pem", "KEY": f"{name}.key"}
        mounts = [("--volume", f"{tmp_path / file}:/etc/fedecado/{file}:ro") for file in parts.values()]
        env = [("--env", f"FEDECADO_NETWORK__TLS_{k}=/etc/fedecado/{file}") for k, file in parts.items()]
        return tuple(word for pair in (*mounts, *env) for word in pair)

    kept = ("--volume", "fedecado-test-runs:/var/lib/fedecado")
    rounds = ("coordinator", "--bind", "0.0.0.0:50051", "--rounds", "3")
    started("coordinator", coordinator, *rounds, options=(*tls("coordinator"), *kept))
    until_healthy(podman, "coordinator")
    joining = ("worker", "--coordinator", "coordinator:50051", "--worker-id", "worker-0")
    started("worker-0", worker, *joining, options=tls("worker-0"))
    codes = podman.run("wait", "coordinator", "worker-0", seconds=300).stdout.split()
    assert codes == ["0", "0"]
    listing = (
        "run",
        "--rm",
        *LOCKED,
        *kept,
        coordinator,
        "model",
        "inspect",
        "runs/run/last.safetensors",
        "--json",
    )
    metadata = json.loads(podman.run(*listing).stdout)
    assert metadata["metadata"]["version"] == "3"


def test_the_process_is_number_one_and_ends_well_when_told_to(
    podman: Podman, coordinator: str, worker: str, started: Any
) -> None:
    plain = ("--bind", "0.0.0.0:50051", "--network-insecure", "--rounds", "none")
    started("coordinator", coordinator, "coordinator", *plain)
    until_healthy(podman, "coordinator")
    started("worker-0", worker, "worker", "--coordinator", "coordinator:50051", "--network-insecure")
    # Healthy is a worker that the coordinator knows.
    until_healthy(podman, "worker-0")
    for name in ("worker-0", "coordinator"):
        first = podman.run("exec", name, "cat", "/proc/1/cmdline").stdout.split("\0")
        assert "python" in first[0] and first[1].endswith("bin/fedecado"), first
        began = time.monotonic()
        podman.run("stop", "--time", "100", name, seconds=150)
        print(f"{name} stopped in {time.monotonic() - began:.1f} s")
        assert inspect(podman, "container", name)["State"]["ExitCode"] == 0, "137 would be a kill"


@pytest.fixture
def composed(podman: Podman, coordinator: str, worker: str, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """podman-compose on the compose file, with certificates, two rounds, and a port that is surely free."""
    tool = shutil.which("podman-compose", path=f"{ROOT / '.venv-deploy' / 'bin'}:{os.environ['PATH']}")
    if tool is None:
        pytest.skip("podman-compose is not installed; make lint-deploy brings it")
    folder = tmp_path / "deploy"
    (folder / "base").mkdir(parents=True)
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    (folder / "compose.yaml").write_text(text.replace('"50051:50051"', '"127.0.0.1::50051"'), "utf-8")
    settings = (DEPLOY / "base" / "fedecado.toml").read_text("utf-8")
    for long, short in (("max_rounds = 100", "max_rounds = 2"), ("min_clients = 2", "min_clients = 1")):
        assert long in settings
        settings = settings.replace(long, short)
    (folder / "base" / "fedecado.toml").write_text(settings, "utf-8")
    make_authority(folder / "certs")
    issue(folder / "certs", "coordinator", hosts=["coordinator"])
    issue(folder / "certs", "worker-0")
    give_to_user(folder / "certs")
    for image in (coordinator, worker):
        podman.run("tag", image, image.replace(":test", ":0.1.0"))
    chosen = ("--profile", "coordinator", "--profile", "worker")
    command = (tool, "--podman-path", podman.wrapper(), "--file", str(folder / "compose.yaml"), *chosen)
    yield command
    subprocess.run([*command, "down", "--volumes"], timeout=120, check=False)


def test_the_compose_file_brings_up_a_federation_that_trains(
    podman: Podman, composed: tuple[str, ...]
) -> None:
    subprocess.run([*composed, "up", "--detach", "--no-build"], timeout=300, check=True)
    names = podman.run("ps", "--all", "--format", "{{.Names}}").stdout.split()
    (trained,) = [name for name in names if "worker" in name]
    (serving,) = [name for name in names if "coordinator" in name]
    # It ends with the run; the coordinator goes on serving the model.
    code = podman.run("wait", trained, seconds=300).stdout.strip()
    print(podman.run("logs", trained).stderr)
    assert code == "0"
    until_healthy(podman, serving)
    # As Kubernetes moves a pod: what is over is served again.
    podman.run("restart", "--time", "60", serving)
    until_healthy(podman, serving)
    looking = ("fedecado", "model", "inspect", "/var/lib/fedecado/study/last.safetensors", "--json")
    metadata = json.loads(podman.run("exec", serving, *looking).stdout)
    assert metadata["metadata"]["version"] == "2"
