"""The coordinator's own web site: the page, the events behind it, and the metrics."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from protocol_client import ProtocolClient
from yarl import URL

from fedecado.common.errors import ConfigError
from fedecado.server.coordinator.process import Coordinator
from fedecado.server.observe.http import PAGE

OBSERVED = {"observe": "127.0.0.1:0"}
Start = Callable[..., Any]
Connect = Callable[..., Any]


@pytest_asyncio.fixture
async def web() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=60), read_bufsize=1 << 20
    ) as session:
        yield session


def url(coordinator: Coordinator, path: str) -> str:
    assert coordinator.observatory is not None
    return coordinator.observatory.url + path


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    """Kinds and contents of what a stream brings."""
    kind = ""
    async for line in response.content:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


async def text(web: aiohttp.ClientSession, address: str) -> str:
    async with web.get(address) as response:
        assert response.status == 200, address
        return await response.text()


async def one_round(client: ProtocolClient, *, first: bool = False) -> None:
    if first:
        await client.send_initial()
    await client.work()


async def test_a_coordinator_serves_no_web_site_unless_asked(start: Start) -> None:
    async with start() as coordinator:
        assert coordinator.observatory is None


async def test_the_page_is_whole_and_needs_nothing_from_elsewhere(
    start: Start, web: aiohttp.ClientSession
) -> None:
    async with start(plan=OBSERVED) as coordinator:
        async with web.get(url(coordinator, "/")) as response:
            assert response.headers["Content-Security-Policy"].startswith("default-src 'self'")
            page = await response.text()
        parts = re.findall(r'(?:src|href)="(page/[^"]+)"', page)
        assert {part.rpartition(".")[2] for part in parts} == {"css", "js"}
        for path in sorted(PAGE.iterdir()):
            if path.suffix in (".js", ".css"):
                part = await text(web, url(coordinator, f"/page/{path.name}"))
                assert not re.search(r"https?:|//cdn|@import", part), path.name
                for imported in re.findall(r'from "\./([^"]+)"', part):
                    assert (PAGE / imported).is_file()
        assert "http:" not in page and "https:" not in page


async def test_the_snapshot_and_the_metrics_show_a_closed_round(
    start: Start, connect: Connect, web: aiohttp.ClientSession
) -> None:
    async with start(plan=OBSERVED, max_rounds=3) as coordinator, connect(coordinator, "w1") as client:
        await one_round(client, first=True)
        await client.receive_assign()  # the next round is open, so the first is closed
        shown = json.loads(await text(web, url(coordinator, "/snapshot")))
        assert [row["number"] for row in shown["rounds"]] == [1]
        (flow,) = [client.pop() for client in shown["windows"]["clients"]]
        assert shown["windows"] == {"round": 1, "T": 0.2, "clients": [["w1", 0.1, 0]], "reach": 2.0}
        assert flow > 0 and [w["flow"] for w in shown["workers"]] == [flow]
        assert [(w["id"], w["state"], w["behind"]) for w in shown["workers"]] == [("w1", "working", 0)]
        assert shown["run"]["waiting_for"] == "round 2: 0 updates in; at least 1 more needed; waiting for w1"
        scraped = await text(web, url(coordinator, "/metrics"))
        for line in (
            'fedecado_rounds_total{closed_by="target"} 1.0',
            'fedecado_updates_total{outcome="accepted",reason=""} 1.0',
            'fedecado_workers{role="trainer",state="working"} 1.0',
            "fedecado_received_bytes_total 4000.0",
            f'fedecado_client_flow_rms{{statistic="max"}} {flow}',
        ):
            assert line in scraped.splitlines()


async def test_a_refused_update_is_counted_with_its_reason(
    start: Start, connect: Connect, web: aiohttp.ClientSession
) -> None:
    async with start(plan=OBSERVED) as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        assign, state = await client.receive_assign()
        await client.send_update(assign, state, window=-1.0)
        await client.receive()
        scraped = await text(web, url(coordinator, "/metrics"))
        assert 'fedecado_updates_total{outcome="refused",reason="invalid"} 1.0' in scraped


async def test_a_browser_hears_of_a_round_as_it_closes_and_of_the_end(
    start: Start, connect: Connect, web: aiohttp.ClientSession
) -> None:
    async with start(plan=OBSERVED) as coordinator, connect(coordinator, "w1") as client:
        async with web.get(url(coordinator, "/events")) as response:
            stream = events(response)
            kind, whole = await anext(stream)
            assert (kind, whole["rounds"], whole["run"]["phase"]) == ("snapshot", [], "waiting")
            await one_round(client, first=True)
            seen: list[int] = []
            async with asyncio.timeout(30):
                while not seen:
                    kind, delta = await anext(stream)
                    assert kind == "delta"
                    seen += [row["number"] for row in delta.get("rounds", [])]
                assert seen[0] == 1
                coordinator.stop()
                rest = [content async for _, content in stream]
            assert rest[-1]["run"]["phase"] in ("stopping", "finished")


async def test_a_browser_that_does_not_read_gets_a_new_snapshot_when_it_does(
    start: Start, web: aiohttp.ClientSession
) -> None:
    async with start(plan=OBSERVED) as coordinator:
        assert coordinator.observatory is not None
        async with web.get(url(coordinator, "/events")) as response:
            stream = events(response)
            assert (await anext(stream))[0] == "snapshot"
            for _ in range(300):  # far more than sockets hold
                coordinator.observatory.feed.publish({"now": 0, "padding": "x" * 100_000})
                await asyncio.sleep(0)
            kinds = []
            while "snapshot" not in kinds:
                kinds.append((await anext(stream))[0])
            assert len(kinds) < 300


async def test_a_private_site_does_not_answer_to_strange_names_and_a_shared_one_warns(
    start: Start, web: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    async with start(plan=OBSERVED) as coordinator:
        async with web.get(url(coordinator, "/snapshot"), headers={"Host": "evil.example"}) as response:
            assert response.status == 403
            assert "bind it to another address" in await response.text()
    async with start(plan={"observe": "0.0.0.0:0", "observe_public": True}) as coordinator:
        port = url(coordinator, "").rpartition(":")[2]
        shared = f"http://127.0.0.1:{port}/snapshot"
        async with web.get(shared, headers={"Host": "runs.example"}) as response:
            assert response.status == 200
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warned == ["anyone who can reach 0.0.0.0:0 can read about the run; it asks for no password"]


async def test_nothing_can_be_changed_and_nothing_else_is_served(
    start: Start, web: aiohttp.ClientSession
) -> None:
    async with start(plan=OBSERVED) as coordinator:
        async with web.post(url(coordinator, "/snapshot")) as response:
            assert response.status == 405
        for path in ("/page/../http.py", "/page/%2e%2e/http.py", "/page/"):
            async with web.get(URL(url(coordinator, path), encoded=True)) as response:
                assert response.status in (403, 404), path


async def test_a_port_in_use_is_said_so_at_the_start(start: Start) -> None:
    async with start(plan=OBSERVED) as coordinator:
        taken = url(coordinator, "").removeprefix("http://")
        with pytest.raises(ConfigError, match=f"cannot serve the dashboard on {taken}.*choose another port"):
            async with start(plan={"observe": taken}):
                pass


async def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("observatory", "http"):
        monkeypatch.delitem(sys.modules, f"fedecado.server.observe.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(ConfigError, match=r"need aiohttp; install fedecado\[server\]"):
        async with start(plan=OBSERVED):
            pass
