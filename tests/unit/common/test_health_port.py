"""Health checks on a port of their own, asked as Kubernetes and `fedecado doctor --probe` ask."""

import asyncio
import socket

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fedecado.cli.main import main
from fedecado.common.errors import ConfigError
from fedecado.common.health_port import HealthPort

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def ask(address: str, service: str) -> int:
    """What the public client of the protocol is told."""
    async with grpc.aio.insecure_channel(address) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        answer = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=30)
    status: int = answer.status
    return status


async def test_a_process_is_alive_from_the_start_and_ready_when_it_says_so() -> None:
    async with HealthPort("127.0.0.1:0") as health:
        assert await ask(health.address, "") == SERVING
        assert await ask(health.address, "ready") == NOT_SERVING
        health.ready = lambda: True
        assert await ask(health.address, "ready") == SERVING


async def test_other_services_are_unknown() -> None:
    async with HealthPort("127.0.0.1:0") as health:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ask(health.address, "fedecado.v1.SessionService")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def test_the_probe_of_the_doctor_asks_this_port(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with HealthPort("0.0.0.0:0") as health:
        monkeypatch.setenv("FEDECADO_NETWORK__HEALTH_BIND", health.address)
        monkeypatch.setenv("FEDECADO_WORKER__COORDINATOR", "127.0.0.1:1")
        assert await asyncio.to_thread(main, ["doctor", "--probe", "alive"]) == 0
        assert await asyncio.to_thread(main, ["doctor", "--probe"]) == 1
        health.ready = lambda: True
        assert await asyncio.to_thread(main, ["doctor", "--probe"]) == 0
        # What is named on the command line counts before the environment.
        assert await asyncio.to_thread(main, ["doctor", "--probe", "--coordinator", "127.0.0.1:1"]) == 1
    assert await asyncio.to_thread(main, ["doctor", "--probe", "alive", "--health", health.address]) == 1
    assert capsys.readouterr() == ("", "")


async def test_without_an_address_nothing_listens() -> None:
    async with HealthPort(None) as health:
        assert health.address == ""


async def test_a_port_in_use_is_named_with_the_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=rf"{address}.*network\.health_bind another port"):
            async with HealthPort(address):
                pass
