"""The dashboard in a real browser. Screenshots are left in tests/artifacts for people to look at."""

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest
from processes import Processes
from protocol_client import LAYOUT, ProtocolClient

from fedecado.server.coordinator.members import Member
from fedecado.server.coordinator.process import Coordinator
from fedecado.server.rounds import Enrolled
from fedecado.v1 import session_pb2 as pb

ARTIFACTS = Path(__file__).parents[1] / "artifacts"
PATIENCE = 60.0
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --force-device-scale-factor=1 --window-size=1400,1250"
)


@final
class Browser:
    """Chromium; its calls block, so they run beside the event loop that serves the page."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    async def open(self, url: str) -> None:
        """Load a page; what the one before said to the console is forgotten."""
        await asyncio.to_thread(self._driver.get, "about:blank")
        await asyncio.to_thread(self._driver.get_log, "browser")
        await asyncio.to_thread(self._driver.get, url)

    async def run(self, script: str, *arguments: Any) -> Any:
        """The value of a JavaScript function's body."""
        return await asyncio.to_thread(self._driver.execute_script, script, *arguments)

    async def until(self, script: str, *arguments: Any) -> Any:
        """The first true value of an expression."""
        from selenium.webdriver.support.ui import WebDriverWait

        def wait() -> Any:
            waiter = WebDriverWait(self._driver, PATIENCE, poll_frequency=0.1)
            return waiter.until(lambda d: d.execute_script(f"return {script}", *arguments), script)

        return await asyncio.to_thread(wait)

    async def sees(self, description: str) -> None:
        """Wait for a plot whose description for screen readers starts so."""
        await self.until(
            "[...document.querySelectorAll('canvas')]"
            ".some(c => c.getAttribute('aria-label').startsWith(arguments[0]))",
            description,
        )

    async def waits(self, words: str) -> None:
        """Wait until the page says that the run waits for this."""
        await self.until("document.getElementById('waiting').textContent.startsWith(arguments[0])", words)

    async def text(self, name: str) -> str:
        return str(await self.run("return document.getElementById(arguments[0]).textContent", name))

    async def theme(self, name: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": name}]
        await asyncio.to_thread(
            self._driver.execute_cdp_cmd, "Emulation.setEmulatedMedia", {"features": features}
        )

    async def keys(self, *keys: str) -> None:
        """Press keys where the focus is."""
        await asyncio.to_thread(lambda: self._driver.switch_to.active_element.send_keys(*keys))

    async def picture(self, name: str) -> None:
        ARTIFACTS.mkdir(exist_ok=True)
        await asyncio.to_thread(self._driver.save_screenshot, str(ARTIFACTS / f"{name}.png"))

    async def says_nothing(self, *, but: str = "\0") -> None:
        """Fail if the console has errors or warnings, other than those that hold `but`."""
        log = await asyncio.to_thread(self._driver.get_log, "browser")
        assert [entry for entry in log if but not in entry["message"]] == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    driver_path = shutil.which("chromedriver")
    if driver_path is None or shutil.which("chromium") is None:
        pytest.skip("chromium and chromedriver are not installed (Debian: chromium chromium-driver)")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = webdriver.ChromeOptions()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS.split(), f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "WARNING"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_path))
        try:
            yield Browser(driver)
        finally:
            driver.quit()


def url(coordinator: Coordinator) -> str:
    assert coordinator.observatory is not None
    return coordinator.observatory.url


async def trains(client: ProtocolClient, step: float, window: float, rounds: int) -> None:
    """Take part in some rounds, drawing towards `step`."""
    for _ in range(rounds):
        assign, state = await client.receive_assign()
        moved = state + np.float32(0.3) * (np.float32(step) - state)
        await client.send_update(assign, moved, window=window, loss_before=1.0, loss_after=0.5)
        await client.expect(pb.Acknowledge)


async def test_the_page_follows_a_run_round_by_round(
    browser: Browser, start: Callable[..., Any], connect: Callable[..., Any]
) -> None:
    plan = {"observe": "127.0.0.1:0"}
    async with start(plan=plan, min_clients=2, max_rounds=None) as coordinator:
        await browser.open(url(coordinator))
        await browser.until("document.getElementById('link').dataset.up === 'yes'")
        await browser.waits("waiting for the initial model from a first worker")
        async with connect(coordinator, "slow") as slow, connect(coordinator, "quick") as quick:
            await slow.send_initial(np.zeros(LAYOUT.size, np.float32))
            await asyncio.gather(trains(slow, 1.0, 0.02, 12), trains(quick, -1.0, 0.1, 12))
            await browser.waits("round 13: ")
            for fact in ("updates24", "workers2 of 2"):
                await browser.until(
                    "document.getElementById('facts').textContent.includes(arguments[0])", fact
                )
            await browser.sees("Windows T_i: round 12, 2 clients, windows from 0.02 to 0.1")
            await browser.sees("Flows and rate: imbalance ‖Σ I_i‖ is ")
            await browser.until(
                "[...document.querySelectorAll('tr[data-row] th')].map(c => c.textContent).join()"
                " === 'quick,slow'"
            )
            await browser.picture("dashboard-light")
            await browser.theme("dark")
            await browser.picture("dashboard-dark")
            await browser.theme("light")
            await browser.says_nothing()
            # The history is there again after a reload.
            await browser.open(url(coordinator))
            await browser.sees("Windows T_i: round 12")
        await browser.says_nothing()


async def test_plots_can_be_read_with_the_keyboard(
    browser: Browser, start: Callable[..., Any], connect: Callable[..., Any]
) -> None:
    async with start(plan={"observe": "127.0.0.1:0"}) as coordinator:
        async with connect(coordinator, "w") as client:
            await client.send_initial()
            await trains(client, 1.0, 0.5, 3)
            await browser.open(url(coordinator))
            await browser.waits("round 4: ")
            await browser.run(
                "window.scope = [...document.querySelectorAll('figure')]"
                ".find(f => f.querySelector('h3').textContent === 'Flows and rate');"
                "scope.querySelector('canvas').focus()"
            )
            await browser.keys("\ue012", "\ue012")  # left, left
            assert (await browser.run("return scope.querySelector('output').textContent")).startswith(
                "round 2: "
            )
            await browser.keys("\ue010")  # end
            assert (await browser.run("return scope.querySelector('output').textContent")).startswith(
                "round 3: "
            )
            await browser.keys("\ue00c")  # escape
            assert await browser.run("return scope.querySelector('output').textContent") == ""
        await browser.says_nothing()


def crowd(coordinator: Coordinator, size: int) -> None:
    """Workers that are known to the run, some with a task and some with an error."""
    for number in range(size):
        name = f"worker-{number}"
        hello = pb.Hello(worker_id=name, role=pb.ROLE_TRAINER, samples=10 + number, device="cpu")
        member = coordinator.run.members.by_id[name] = Member(name, number, pb.ROLE_TRAINER, hello)
        member.last_window = 0.01 * (1 + number % 50)
        if number % 10 == 0:
            member.blame("ValueError", f"sample {number} is empty")
        coordinator.run.engine.handle(Enrolled(name, 10 + number))


async def test_a_thousand_workers_stay_smooth(browser: Browser, start: Callable[..., Any]) -> None:
    async with start(plan={"observe": "127.0.0.1:0"}, min_clients=5000) as coordinator:
        crowd(coordinator, 1000)
        await browser.open(url(coordinator))
        await browser.until("document.getElementById('shown').textContent === '1000 workers'")
        assert await browser.until("document.querySelectorAll('tr[data-row]').length") < 60
        await browser.run(
            "window.gaps = []; let last = performance.now();"
            "const tick = (now) => { gaps.push(now - last); last = now; requestAnimationFrame(tick); };"
            "requestAnimationFrame(tick)"
        )
        for number, member in enumerate(coordinator.run.members.by_id.values()):
            member.accepted = number  # every row changes
        await browser.run("document.querySelector('.rows').scrollTop = 1e9")
        last = "[...document.querySelectorAll('tr[data-row]:not([hidden])')].pop().cells"
        await browser.until(f"{last}[0].textContent === 'worker-999' && {last}[6].textContent === '999'")
        # Two busy cores are no measure of smoothness; a page that draws all rows takes longer by far.
        assert max(await browser.run("return gaps")) < 1000
        await browser.run("document.querySelectorAll('thead button')[7].focus()")
        await browser.keys("\ue007")  # enter
        assert await browser.run("return document.querySelector('[aria-sort]').textContent") == "Last error"
        await browser.run("document.querySelector('.rows').scrollTop = 0")
        await browser.until(
            "document.querySelector('tr[data-row]').cells[7].textContent.includes('is empty')"
        )
        await browser.run("document.getElementById('filter').focus()")
        await browser.keys("worker-77")
        await browser.until("document.getElementById('shown').textContent === '11 of 1000 workers'")
        await browser.run("document.getElementById('workers').scrollIntoView()")
        await browser.picture("thousand-workers")
        await browser.says_nothing()


async def test_the_page_comes_back_with_its_coordinator(browser: Browser, start: Callable[..., Any]) -> None:
    async with start(plan={"observe": "127.0.0.1:0"}) as coordinator:
        address = url(coordinator)
        await browser.open(address)
        await browser.until("document.getElementById('name').textContent === 'test'")
    await browser.until("document.getElementById('link').textContent === 'no connection; trying again'")
    async with start(plan={"observe": address.removeprefix("http://"), "name": "again"}):
        await browser.until("document.getElementById('name').textContent === 'again'")
        assert await browser.text("link") == "connected"
    # A browser reports every connection that it could not make.
    await browser.says_nothing(but="net::ERR_")


async def test_a_finished_run_can_be_opened(browser: Browser, processes: Processes) -> None:
    simulated = await processes.start(
        "simulate",
        "simulate",
        "--task",
        "quadratics",
        "--clients",
        "4",
        "--rounds",
        "30",
        "--json",
        "results.json",
    )
    assert await simulated.exits() == 0, simulated.text
    command = await processes.start("dashboard", "dashboard", "results.json")
    line = await command.says("dashboard of run on")
    await browser.open(line.split(" on ")[1].partition(";")[0])
    await browser.until("document.getElementById('link').textContent === 'a run that is over'")
    await browser.waits("finished: all 30 rounds are done")
    await browser.sees("Quality: distance is ")
    await browser.picture("finished-run")
    await browser.says_nothing()
    command.send_signal(signal.SIGTERM)
    assert await command.exits() == 0
