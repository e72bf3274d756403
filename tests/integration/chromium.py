"""A real browser for tests. Screenshots are left in tests/artifacts for people to look at."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest
from protocol_client import ProtocolClient

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
