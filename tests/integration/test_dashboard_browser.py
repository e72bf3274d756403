"""The dashboard in a real browser."""

import asyncio
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
from chromium import Browser, crowd, trains, url
from processes import Processes
from protocol_client import LAYOUT


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
        await browser.until(f"{last}[0].textContent === 'worker-999' && {last}[9].textContent === '999'")
        # Two busy cores are no measure of smoothness; a page that draws all rows takes longer by far.
        assert max(await browser.run("return gaps")) < 1000
        await browser.run("document.querySelectorAll('thead button')[10].focus()")
        await browser.keys("\ue007")  # enter
        assert await browser.run("return document.querySelector('[aria-sort]').textContent") == "Last error"
        await browser.run("document.querySelector('.rows').scrollTop = 0")
        await browser.until(
            "document.querySelector('tr[data-row]').cells[10].textContent.includes('is empty')"
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
    await browser.sees("Windows T_i: round 30, 4 clients")
    await browser.until("document.getElementById('shown').textContent === '4 workers'")
    assert await browser.run("return document.getElementById('unlock').hidden"), "there is nothing to operate"
    await browser.picture("finished-run")
    await browser.says_nothing()
    command.send_signal(signal.SIGTERM)
    assert await command.exits() == 0
