"""Every session that a real coordinator refuses is counted by its reason, and nobody else is."""

from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from protocol_client import LAYOUT, ProtocolClient

from fedecado.common.certificates import issue, make_authority
from fedecado.common.layout import Layout
from fedecado.common.tls import TlsFiles
from fedecado.server.coordinator.exclusion import ban
from fedecado.server.coordinator.process import Coordinator
from fedecado.server.coordinator.quotas import Limits
from fedecado.server.coordinator.refusals import SESSION_REASONS
from fedecado.v1 import session_pb2 as pb


async def refused(coordinator: Coordinator) -> dict[str, float]:
    """Reasons that were counted, and how often."""
    assert coordinator.observatory is not None
    async with (
        aiohttp.ClientSession() as web,
        web.get(coordinator.observatory.url + "/metrics") as response,
    ):
        families = text_string_to_metric_families(await response.text())
    (found,) = (family for family in families if family.name == "fedecado_sessions_refused")
    counts = {s.labels["reason"]: s.value for s in found.samples if s.name.endswith("_total")}
    assert set(counts) == set(SESSION_REASONS), "all are there from the start, so that a rate can be taken"
    return {reason: count for reason, count in counts.items() if count}


async def test_refused_sessions_are_counted_by_reason(start: Any, connect: Any) -> None:
    plan = {"observe": "127.0.0.1:0", "limits": Limits(sessions=3)}
    async with start(plan=plan) as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        assert await refused(coordinator) == {}
        ban(coordinator.run, "bad", "sends garbage")
        attempts: list[tuple[str, Layout, dict[str, Any]]] = [
            ("w2", LAYOUT, {"protocol": pb.ProtocolVersion(major=99)}),
            ("w2", Layout.flat(3), {}),
            ("no spaces", LAYOUT, {}),
            ("w1", LAYOUT, {}),
            ("bad", LAYOUT, {}),
        ]
        for worker, layout, changes in attempts:
            async with connect(coordinator, worker, layout, expect=pb.Refused, **changes):
                pass
        async with (
            connect(coordinator, "w2"),
            connect(coordinator, "w3"),
            connect(coordinator, "w4", expect=pb.Refused),
        ):
            pass
        assert await refused(coordinator) == {
            "protocol_version": 1,
            "layout": 1,
            "bad_message": 1,
            "worker_id_taken": 1,
            "banned": 1,
            "full": 1,
        }


async def test_a_session_that_is_ended_for_what_it_sends_is_counted(start: Any, connect: Any) -> None:
    async with start(plan={"observe": "127.0.0.1:0"}) as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        await client.receive_assign()
        await client.send(hello=pb.Hello(worker_id="w1"))
        await client.expect(pb.Refused)
        assert await refused(coordinator) == {"bad_message": 1}


async def test_another_id_than_the_certificates_is_counted(start: Any, tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    make_authority(folder)
    issue(folder, "coordinator", hosts=["127.0.0.1"])
    issue(folder, "w1")

    def files(name: str) -> TlsFiles:
        return TlsFiles(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")

    plan = {"observe": "127.0.0.1:0", "tls": files("coordinator")}
    async with (
        start(plan=plan) as coordinator,
        ProtocolClient(coordinator.address, "w2", LAYOUT, files("w1")) as client,
    ):
        await client.hello(expect=pb.Refused)
        assert await refused(coordinator) == {"identity": 1}
