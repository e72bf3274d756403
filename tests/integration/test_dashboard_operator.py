"""Operating a run from its page in a real browser, and the page's accessibility."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chromium import Browser, crowd, trains, url

from fedecado.server.coordinator.admin_token import AdminToken
from fedecado.v1 import session_pb2 as pb

AXE = Path(__file__).parent / "axe" / "axe.min.js"
SECRET = "correct-horse-battery-staple"  # noqa: S105 - a test's


@pytest.fixture
def plan(tmp_path: Path) -> dict[str, Any]:
    """A page that operators can act on."""
    path = tmp_path / "token"
    path.write_text(SECRET)
    path.chmod(0o600)
    return {"observe": "127.0.0.1:0", "admin_token": AdminToken.from_file(path)}


async def accessible(browser: Browser) -> list[str]:
    """What axe-core has to say against the page as it is."""
    await browser.run(f"{AXE.read_text(encoding='utf-8')}; window.axe = axe")
    found = await browser.run(
        "return axe.run(document, {resultTypes: ['violations']}).then(found => found.violations"
        ".flatMap(v => v.nodes.map(n => `${v.id}: ${n.html} ${n.failureSummary}`)))"
    )
    return list(found)


async def test_the_page_is_accessible_in_both_themes_and_with_its_dialogs(
    browser: Browser, start: Callable[..., Any], connect: Callable[..., Any], plan: dict[str, Any]
) -> None:
    async with start(plan=plan) as coordinator, connect(coordinator, "w") as client:
        await client.send_initial()
        await trains(client, 1.0, 0.5, 3)
        crowd(coordinator, 30)
        for theme in ("light", "dark"):
            await browser.theme(theme)
            await browser.open(url(coordinator))
            await browser.waits("round 4: ")
            await browser.until("document.getElementById('shown').textContent === '31 workers'")
            assert await accessible(browser) == [], theme
            await operate(browser)
            await browser.run("document.getElementById('stop').click()")
            assert await accessible(browser) == [], f"{theme}, with a dialog"
            await browser.run("document.getElementById('confirm').close(); sessionStorage.clear()")
        await browser.theme("light")
        await browser.says_nothing()


async def operate(browser: Browser, token: str = SECRET) -> None:
    """Type the token into the page's dialog."""
    await browser.until("!document.getElementById('unlock').hidden")
    await browser.run("document.getElementById('unlock').click()")
    await browser.keys(token, "\ue007")
    if token == SECRET:
        await browser.until("!document.getElementById('pause').hidden")


async def test_an_operator_pauses_drops_and_stops_from_the_page(
    browser: Browser, start: Callable[..., Any], connect: Callable[..., Any], plan: dict[str, Any]
) -> None:
    async with start(plan={**plan, "linger": None}) as coordinator, connect(coordinator, "w") as client:
        await client.send_initial()
        await client.receive_assign()
        await browser.open(url(coordinator))
        await browser.waits("round 1: ")
        assert await browser.run("return document.getElementById('pause').hidden"), "nobody operates yet"
        await operate(browser, "a guess")
        await browser.until("document.getElementById('login-error').textContent === 'That is not the token.'")
        await browser.run("document.getElementById('login-cancel').click()")
        await operate(browser)
        await browser.picture("operating")
        await browser.run("document.getElementById('pause').click()")
        await browser.until("document.getElementById('pause').textContent === 'Resume'")
        assert coordinator.run.engine.paused
        await browser.run("document.querySelector('.drop').click()")
        await browser.until("document.getElementById('confirm').open")
        await browser.picture("drop")
        await browser.run("document.getElementById('confirm-choices').lastChild.click()")
        bye = await client.expect(pb.CoordinatorBye)
        assert bye.message.startswith("dropped: ")
        await browser.until("document.querySelector('.drop').disabled")
        # The token outlives a reload of the page, not the operator's wish.
        await browser.open(url(coordinator))
        await browser.until("!document.getElementById('stop').hidden")
        await browser.run("document.getElementById('stop').click()")
        await browser.until("document.getElementById('confirm').open")
        await browser.run("document.getElementById('confirm-choices').lastChild.click()")
        await browser.waits("finished: stopped on the dashboard, by an operator")
        await browser.run("document.getElementById('lock').click()")
        await browser.until("document.getElementById('lock').hidden")
        assert await browser.run("return sessionStorage.length") == 0
        await browser.says_nothing()


async def test_beyond_this_machine_the_page_asks_for_the_token_before_it_shows_anything(
    browser: Browser, start: Callable[..., Any], plan: dict[str, Any]
) -> None:
    async with start(plan={**plan, "observe": "0.0.0.0:0"}) as coordinator:
        await browser.open(url(coordinator).replace("0.0.0.0", "127.0.0.1"))  # noqa: S104 - not a bind
        await browser.until("document.getElementById('login').open")
        assert await browser.text("name") == "fedecado", "nothing of the run is shown"
        await browser.keys(SECRET, "\ue007")
        await browser.until("document.getElementById('name').textContent === 'test'")
        await browser.run("sessionStorage.clear()")
        await browser.says_nothing()
