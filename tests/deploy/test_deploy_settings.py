"""What no schema sees: the manifests give fedecado settings that it takes, and files that are there."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendering import ALL, DEPLOY, ROOT, SECRETS, Rendered, ports_of, variables

from fedecado.cli.coordinator import CoordinatorSettings
from fedecado.cli.main import COMMANDS
from fedecado.cli.worker import WorkerSettings
from fedecado.common.sections import Everything
from fedecado.common.settings import load
from fedecado.common.tls import is_loopback

pytestmark = pytest.mark.parametrize("rendered", ALL, ids=lambda found: found.name)


def test_tls_files_of_the_settings_are_mounted(rendered: Rendered) -> None:
    for pod, container in rendered.containers():
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = container["volumeMounts"]
        for name, path in variables(container).items():
            if not name.startswith("FEDECADO_NETWORK__TLS_"):
                continue
            whole = [m for m in mounts if m["mountPath"] == str(Path(path).parent)]
            single = [m for m in mounts if m["mountPath"] == path]
            (mount,) = whole or single
            if whole and "secret" in volumes[mount["name"]]:
                assert Path(path).name in SECRETS[volumes[mount["name"]]["secret"]["secretName"]]


def test_secrets_that_workers_need_are_made_by_someone(rendered: Rendered) -> None:
    """By cert-manager, or by hand; without TLS none is asked for, and the process is told so."""
    made = {found["spec"]["secretName"] for found in rendered.of("Certificate")}
    for pod, container in rendered.containers():
        asked = {
            v["secret"]["secretName"]
            for v in pod["volumes"]
            if "secret" in v and not v["secret"].get("optional")
        }
        assert asked <= SECRETS.keys() | made
        tls = any(name.startswith("FEDECADO_NETWORK__TLS_") for name in variables(container))
        insecure = "FEDECADO_NETWORK__INSECURE" in variables(container)
        assert tls != insecure or container["name"] == "loadtest"


def test_a_workers_id_index_and_shares_last_and_agree(rendered: Rendered) -> None:
    worker = rendered.the("StatefulSet", "fedecado-worker")
    (container,) = worker["spec"]["template"]["spec"]["containers"]
    env = {item["name"]: item for item in container["env"]}
    assert env["FEDECADO_WORKER__ID"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    index = env["FEDECADO_WORKER__INDEX"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert index == "metadata.labels['apps.kubernetes.io/pod-index']"
    scalers = rendered.of("HorizontalPodAutoscaler")
    assert ("replicas" in worker["spec"]) != bool(scalers), "one of the two decides"
    most = scalers[0]["spec"]["maxReplicas"] if scalers else worker["spec"]["replicas"]
    evaluator = rendered.the("Deployment", "fedecado-evaluator")["spec"]["template"]["spec"]["containers"][0]
    assert variables(container)["FEDECADO_WORKER__CLIENTS"] == str(most)
    assert variables(evaluator)["FEDECADO_WORKER__CLIENTS"] == str(most)


def test_fedecado_accepts_the_arguments_variables_and_file_of_every_container(
    rendered: Rendered, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"coordinator": CoordinatorSettings, "worker": WorkerSettings}
    for pod, container in rendered.containers():
        command, *rest = container["args"]
        assert command in COMMANDS
        if command not in settings:
            continue
        assert rest == ["--config", "/etc/fedecado/fedecado.toml"]
        assert rest[1] in {mount["mountPath"] for mount in container["volumeMounts"]}
        (volume,) = [v for v in pod["volumes"] if v["name"] == "config"]
        text = rendered.the("ConfigMap", volume["configMap"]["name"])["data"]["fedecado.toml"]
        file = tmp_path / "fedecado.toml"
        file.write_text(text, encoding="utf-8")
        read = load(settings[command], file=file, env=variables(container), known=Everything).settings
        assert str(read.run.directory) == "/var/lib/fedecado"
        if command == "coordinator":
            assert read.coordinator.linger is None, "or a pod that moves after the run's end fails for ever"
            assert read.run.directory.as_posix() in {
                mount["mountPath"] for mount in container["volumeMounts"]
            }
            assert int(read.coordinator.bind.rpartition(":")[2]) == ports_of({"spec": pod})["grpc"]
            bound = read.observe.bind or "localhost:0"
            assert is_loopback(bound) != ("observe" in ports_of({"spec": pod}))
        else:
            host, _, port = read.worker.coordinator.rpartition(":")
            assert int(port) in {p["port"] for p in rendered.the("Service", host)["spec"]["ports"]}


def test_certificates_are_for_the_names_they_are_used_under(rendered: Rendered) -> None:
    for certificate in rendered.of("Certificate"):
        if certificate["metadata"]["name"] == "fedecado-coordinator":
            assert "fedecado" in certificate["spec"]["dnsNames"], "as workers call it"
        issuer = certificate["spec"]["issuerRef"]
        assert rendered.the(issuer["kind"], issuer["name"])
    for pod, container in rendered.containers():
        for volume in (v for v in pod["volumes"] if "csi" in v):
            attributes = volume["csi"]["volumeAttributes"]
            name = attributes["csi.cert-manager.io/common-name"]
            worker = variables(container)["FEDECADO_WORKER__ID"]
            assert name in (worker, "${POD_NAME}")
            assert (name == "${POD_NAME}") == (worker == "fedecado-worker-1")
            assert rendered.the("Issuer", attributes["csi.cert-manager.io/issuer-name"])


def test_the_alert_rules_are_those_of_the_plain_file(rendered: Rendered) -> None:
    source = (DEPLOY / "components" / "prometheus" / "alerts.yaml").read_text("utf-8")
    for rule in rendered.of("PrometheusRule"):
        assert rule["spec"] == yaml.safe_load(source)


def test_images_are_of_this_version_unless_an_overlay_says_otherwise(rendered: Rendered) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    for _, container in rendered.containers():
        name, _, tag = container["image"].rpartition(":")
        assert Path(name).name in ("coordinator", "worker", "fedecado-coordinator", "fedecado-worker")
        assert tag == ("local" if rendered.name == "overlays/local" else version)


def test_all_is_in_one_namespace(rendered: Rendered) -> None:
    """Also when an overlay forgets to say which, as these combinations do."""
    (namespace,) = rendered.of("Namespace")
    scattered = [found for found in rendered.objects if found["kind"] not in ("Namespace", "PriorityClass")]
    assert {found["metadata"].get("namespace") for found in scattered} == {namespace["metadata"]["name"]}
