"""Acting through the web site: who may, and what happens."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from fedecado.server.coordinator.admin_token import AdminToken
from fedecado.server.coordinator.process import Coordinator
from fedecado.server.observe.access import ADDRESSES, TRIES, WAIT_SECONDS, Throttle
from fedecado.v1 import session_pb2 as pb

SECRET = "correct-horse-battery-staple"  # noqa: S105 - a test's
Start = Callable[..., Any]
Connect = Callable[..., Any]


@pytest.fixture
def plan(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "token"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    return {"observe": "127.0.0.1:0", "admin_token": AdminToken.from_file(path)}


@pytest_asyncio.fixture
async def web() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield session


def url(coordinator: Coordinator, path: str) -> str:
    assert coordinator.observatory is not None
    return coordinator.observatory.url.replace("0.0.0.0", "127.0.0.1") + path  # noqa: S104 - not a bind


async def act(
    web: aiohttp.ClientSession, coordinator: Coordinator, name: str, *, token: str = SECRET, **body: Any
) -> tuple[int, str]:
    """What comes of an action."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with web.post(url(coordinator, f"/actions/{name}"), json=body, headers=headers) as answer:
        return answer.status, await answer.text()


async def test_an_operator_pauses_resumes_and_stops_a_run(
    start: Start, connect: Connect, web: aiohttp.ClientSession, plan: dict[str, Any]
) -> None:
    async with start(plan=plan) as coordinator, connect(coordinator, "w1") as client:
        await client.send_initial()
        assign, state = await client.receive_assign()
        assert (await act(web, coordinator, "pause"))[0] == 200 and coordinator.run.engine.paused
        assert await act(web, coordinator, "resume") == (200, '{"done": "resumed"}')
        assert not coordinator.run.engine.paused
        status, words = await act(web, coordinator, "stop")
        assert status == 200 and "when the open round has closed" in words
        assert coordinator.run.engine.finished is None
        await client.send_update(assign, state)
        await client.expect(pb.Acknowledge)
        bye = await client.expect(pb.CoordinatorBye)
        assert bye.reason == pb.CoordinatorBye.REASON_FINISHED
        assert "on the dashboard, by an operator" in bye.message


async def test_a_run_is_stopped_at_once_if_that_is_asked_for(
    start: Start, web: aiohttp.ClientSession, plan: dict[str, Any]
) -> None:
    async with start(plan={**plan, "linger": None}) as coordinator:
        assert (await act(web, coordinator, "stop", now=True))[0] == 200
        assert coordinator.run.engine.finished
        status, words = await act(web, coordinator, "pause")
        assert (status, "the run is over" in words) == (409, True)


async def test_a_dropped_worker_is_told_and_may_come_back(
    start: Start, connect: Connect, web: aiohttp.ClientSession, plan: dict[str, Any]
) -> None:
    async with start(plan=plan) as coordinator:
        async with connect(coordinator, "w1") as client:
            await client.send_initial()
            await client.receive_assign()
            assert (await act(web, coordinator, "drop", worker="w1"))[0] == 200
            bye = await client.expect(pb.CoordinatorBye)
            assert bye.message == "dropped: on the dashboard, by an operator"
            status, words = await act(web, coordinator, "drop", worker="w1")
            assert (status, words) == (409, "w1 is not connected\n")
        assert (await act(web, coordinator, "drop", worker="w2"))[0] == 404
        assert (await act(web, coordinator, "drop", worker=["w1"]))[0] == 404
        async with connect(coordinator, "w1") as client:
            assert coordinator.run.members.by_id["w1"].session is not None


async def test_nobody_acts_without_the_token(
    start: Start, web: aiohttp.ClientSession, plan: dict[str, Any]
) -> None:
    async with start(plan=plan) as coordinator:
        assert (await act(web, coordinator, "pause", token=""))[0] == 401
        assert (await act(web, coordinator, "pause", token="x"))[0] == 401  # noqa: S106 - not one
        async with web.get(url(coordinator, "/actions/pause")) as answer:
            assert answer.status == 405
        assert not coordinator.run.engine.paused
    async with start(plan={"observe": "127.0.0.1:0"}) as coordinator:
        status, words = await act(web, coordinator, "pause")
        assert (status, "set network.admin_token_file" in words) == (403, True)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
async def test_a_page_elsewhere_cannot_act_even_with_the_token(
    start: Start, web: aiohttp.ClientSession, plan: dict[str, Any], headers: dict[str, str], status: int
) -> None:
    async with start(plan=plan) as coordinator:
        sent = {"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json", **headers}
        async with web.post(url(coordinator, "/actions/pause"), data=b"{}", headers=sent) as answer:
            assert answer.status == status
        assert not coordinator.run.engine.paused


async def test_what_is_no_request_is_refused_and_does_no_harm(
    start: Start, web: aiohttp.ClientSession, plan: dict[str, Any]
) -> None:
    async with start(plan=plan) as coordinator:
        sent = {"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json"}
        for body, status in ((b"{", 400), (b"[]", 400), (b" " * (1 << 17), 413)):
            async with web.post(url(coordinator, "/actions/drop"), data=body, headers=sent) as answer:
                assert answer.status == status
        assert (await act(web, coordinator, "explode"))[0] == 404


async def test_who_guesses_has_to_wait(
    start: Start, web: aiohttp.ClientSession, plan: dict[str, Any]
) -> None:
    async with start(plan=plan) as coordinator:
        for _ in range(TRIES):
            assert (await act(web, coordinator, "pause", token="guess"))[0] == 401  # noqa: S106 - not one
        status, words = await act(web, coordinator, "pause")
        assert (status, "too many wrong tokens" in words) == (429, True)
        assert not coordinator.run.engine.paused
        async with web.get(url(coordinator, "/snapshot")) as answer:
            assert answer.status == 200, "looking is not concerned"


def test_an_address_is_heard_again_after_a_while_and_others_always() -> None:
    now = [0.0]
    throttle = Throttle(clock=lambda: now[0])
    for _ in range(TRIES):
        assert throttle.wait("a") == 0
        throttle.failed("a")
    assert throttle.wait("a") == WAIT_SECONDS and throttle.wait("b") == 0
    now[0] += WAIT_SECONDS
    assert throttle.wait("a") == 0
    for number in range(2 * ADDRESSES):
        throttle.failed(str(number))
    assert len(throttle._wrong) == ADDRESSES


async def test_beyond_this_machine_the_page_takes_the_token_and_metrics_do_not(
    start: Start, web: aiohttp.ClientSession, plan: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    everywhere = {"observe": "0.0.0.0:0"}
    async with start(plan={**plan, **everywhere}) as coordinator:
        for path in ("/snapshot", "/events"):
            async with web.get(url(coordinator, path)) as answer:
                assert answer.status == 401 and "show the operators' token" in await answer.text()
        headers = {"Authorization": f"Bearer {SECRET}"}
        async with web.get(url(coordinator, "/snapshot"), headers=headers) as answer:
            assert (await answer.json())["run"]["name"] == "test"
        for path in ("/", "/metrics"):
            async with web.get(url(coordinator, path)) as answer:
                assert answer.status == 200
    assert not [r for r in caplog.records if r.levelname == "WARNING"]
    async with start(plan=everywhere) as coordinator, web.get(url(coordinator, "/snapshot")) as answer:
        assert answer.status == 401 and "set network.admin_token_file" in await answer.text()
    assert "shows metrics only" in caplog.text


@pytest.mark.parametrize(
    ("token", "rights"),
    [
        ("", {"view": True, "operate": False, "operable": True}),
        ("wrong", {"view": True, "operate": False, "operable": True}),
        (SECRET, {"view": True, "operate": True, "operable": True}),
    ],
)
async def test_the_page_is_told_what_it_may_do(
    start: Start, web: aiohttp.ClientSession, plan: dict[str, Any], token: str, rights: dict[str, bool]
) -> None:
    async with start(plan=plan) as coordinator:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with web.get(url(coordinator, "/access"), headers=headers) as answer:
            assert await answer.json() == rights
