"""What no schema sees: selectors, ports, probes, volumes and rights of the manifests fit each other."""

import re
from collections.abc import Iterator

import pytest
from rendering import ALL, SECRETS, USER, WORKLOADS, Object, Rendered, matches, pods, ports_of, variables

pytestmark = pytest.mark.parametrize("rendered", ALL, ids=lambda found: found.name)


def test_selectors_find_their_own_pods(rendered: Rendered) -> None:
    for workload in rendered.of("StatefulSet", "Deployment"):
        (found,) = pods(rendered, workload["spec"]["selector"])
        assert found is workload["spec"]["template"], "and no other workload's"
    for service in rendered.of("Service"):
        assert len(pods(rendered, service["spec"]["selector"])) == 1, service["metadata"]["name"]
    for budget in rendered.of("PodDisruptionBudget"):
        assert len(pods(rendered, budget["spec"]["selector"])) == 1
    for workload in rendered.of("StatefulSet"):
        assert rendered.the("Service", workload["spec"]["serviceName"])["spec"]["clusterIP"] == "None"
    for monitor in rendered.of("ServiceMonitor"):
        services = [
            s for s in rendered.of("Service") if matches(monitor["spec"]["selector"], s["metadata"]["labels"])
        ]
        assert [s["metadata"]["name"] for s in services] == ["fedecado-observe"]
        assert monitor["spec"]["endpoints"][0]["port"] == services[0]["spec"]["ports"][0]["name"]


def test_policies_open_ports_that_exist_for_pods_that_exist(rendered: Rendered) -> None:
    policies = rendered.of("NetworkPolicy")
    (deny,) = [p for p in policies if p["spec"]["podSelector"] == {}]
    assert deny["spec"]["policyTypes"] == ["Ingress", "Egress"] and "ingress" not in deny["spec"]
    for policy in (p for p in policies if p is not deny):
        targets = pods(rendered, policy["spec"]["podSelector"])
        assert targets, policy["metadata"]["name"]
        for rule in policy["spec"].get("ingress", []):
            assert all(port["port"] in ports_of(pod) for pod in targets for port in rule["ports"])
        for peer in peers(policy):
            if "podSelector" in peer and "namespaceSelector" not in peer:
                assert pods(rendered, peer["podSelector"]), policy["metadata"]["name"]


def peers(policy: Object) -> Iterator[Object]:
    for rule in policy["spec"].get("ingress", []):
        yield from rule["from"]
    for rule in policy["spec"].get("egress", []):
        yield from rule["to"]


def test_every_worker_may_reach_the_coordinator_and_is_let_in(rendered: Rendered) -> None:
    coordinator = rendered.the("StatefulSet", "fedecado-coordinator")["spec"]["template"]["metadata"][
        "labels"
    ]
    for workload in rendered.of(*WORKLOADS):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        if labels == coordinator:
            continue
        policies = [p["spec"] for p in rendered.of("NetworkPolicy")]
        out = [r for p in policies if matches(p["podSelector"], labels) for r in p.get("egress", [])]
        into = [r for p in policies if matches(p["podSelector"], coordinator) for r in p.get("ingress", [])]
        for rules, way, other in ((out, "to", coordinator), (into, "from", labels)):
            assert any(
                matches(peer["podSelector"], other) and {"grpc"} == {port["port"] for port in rule["ports"]}
                for rule in rules
                for peer in rule[way]
                if "podSelector" in peer
            ), workload["metadata"]["name"]


def test_services_and_ingresses_lead_to_ports_that_exist(rendered: Rendered) -> None:
    for service in rendered.of("Service"):
        (pod,) = pods(rendered, service["spec"]["selector"])
        assert {port["targetPort"] for port in service["spec"].get("ports", [])} <= ports_of(pod).keys()
    for ingress in rendered.of("Ingress"):
        for rule in ingress["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                backend = path["backend"]["service"]
                ports = rendered.the("Service", backend["name"])["spec"]["ports"]
                assert backend["port"]["name"] in {port["name"] for port in ports}


def test_probes_ask_where_the_process_answers(rendered: Rendered) -> None:
    probed = 0
    for _, container in rendered.containers():
        health = variables(container)["FEDECADO_NETWORK__HEALTH_BIND"]
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container.get(name)
            if probe is None:
                assert container["name"] == "loadtest"
                continue
            probed += 1
            wants_ready = name == "readinessProbe"
            if "grpc" in probe:
                assert health == f"0.0.0.0:{probe['grpc']['port']}"
                assert probe["grpc"]["port"] in [port["containerPort"] for port in container["ports"]]
                assert probe["grpc"].get("service", "") == ("ready" if wants_ready else "")
            else:
                words = ["fedecado", "doctor", "--probe", *([] if wants_ready else ["alive"])]
                assert probe["exec"]["command"] == words
            assert probe["timeoutSeconds"] > 3, "the command itself gives up after 3 s"
    assert probed == 9


def test_mounted_volumes_and_their_keys_exist(rendered: Rendered) -> None:
    for pod, container in rendered.containers():
        claims = {
            claim["metadata"]["name"]
            for workload in rendered.of("StatefulSet")
            if workload["spec"]["template"]["spec"] is pod
            for claim in workload["spec"].get("volumeClaimTemplates", [])
        }
        volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
        mounts = container.get("volumeMounts", [])
        assert {mount["name"] for mount in mounts} == volumes.keys() | claims, "and none is there for nothing"
        assert len({mount["mountPath"] for mount in mounts}) == len(mounts)
        for mount in mounts:
            assert_key_exists(rendered, volumes.get(mount["name"], {}), mount)


def assert_key_exists(rendered: Rendered, volume: Object, mount: Object) -> None:
    key = mount.get("subPath")
    if "configMap" in volume:
        data = rendered.the("ConfigMap", volume["configMap"]["name"])["data"]
        assert key in data
    elif "secret" in volume and not volume["secret"].get("optional"):
        keys = SECRETS[volume["secret"]["secretName"]]
        expression = mount.get("subPathExpr")
        if expression is not None:
            assert expression in ("$(FEDECADO_WORKER__ID).pem", "$(FEDECADO_WORKER__ID).key")
        elif key is not None:
            assert key in keys


def amount(text: str) -> float:
    units = {"m": 1e-3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "": 1}
    number, unit = re.fullmatch(r"([\d.]+)(\w*)", str(text)).groups()  # type: ignore[union-attr]  # it matches
    return float(number) * units[unit]


def test_requests_are_under_limits_and_memory_has_both(rendered: Rendered) -> None:
    for _, container in rendered.containers():
        requests, limits = container["resources"]["requests"], container["resources"]["limits"]
        assert {"cpu", "memory", "ephemeral-storage"} <= requests.keys()
        assert {"memory", "ephemeral-storage"} <= limits.keys()
        for name in requests.keys() & limits.keys():
            assert amount(requests[name]) <= amount(limits[name]), name


def test_pods_have_no_more_rights_than_they_need(rendered: Rendered) -> None:
    accounts = {account["metadata"]["name"]: account for account in rendered.of("ServiceAccount")}
    classes = {found["metadata"]["name"] for found in rendered.of("PriorityClass")}
    for pod, container in rendered.containers():
        assert pod["automountServiceAccountToken"] is False
        assert accounts[pod["serviceAccountName"]]["automountServiceAccountToken"] is False
        assert pod["priorityClassName"] in classes
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == USER
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    assert not rendered.of("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
