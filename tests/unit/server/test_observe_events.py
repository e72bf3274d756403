"""Browsers get a snapshot and then deltas, and none can make the server keep more than a few."""

import asyncio
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fedecado.server.observe.events import BROWSERS, QUEUE, Feed, Subscriber


def parse(message: bytes | None) -> tuple[str, int, Any]:
    """Kind, number and content of an event."""
    assert message is not None
    lines = dict(line.split(": ", 1) for line in message.decode().rstrip("\n").split("\n"))
    return lines["event"], int(lines["id"]), json.loads(lines["data"])


async def test_a_browser_gets_a_snapshot_and_then_every_delta_in_order() -> None:
    feed = Feed(lambda: {"whole": True})
    with feed.subscribe() as browser:
        assert parse(await browser.next()) == ("snapshot", 0, {"whole": True})
        for number in (1, 2, 3):
            feed.publish({"n": number})
        assert [parse(await browser.next()) for _ in range(3)] == [("delta", n, {"n": n}) for n in (1, 2, 3)]


async def test_a_browser_that_does_not_read_loses_deltas_and_gets_a_new_snapshot() -> None:
    state = {"n": 0}
    feed = Feed(lambda: state)
    with feed.subscribe() as slow:
        await slow.next()
        for n in range(1, QUEUE + 2):
            state["n"] = n
            feed.publish({"n": n})
        assert parse(await slow.next()) == ("snapshot", QUEUE + 1, {"n": QUEUE + 1})
        feed.publish({"n": -1})
        assert parse(await slow.next())[0] == "delta"


async def test_a_snapshot_is_made_once_for_all_who_need_it() -> None:
    made = []
    feed = Feed(lambda: made.append(1) or {})  # type: ignore[func-returns-value]  # append is the point
    with feed.subscribe() as one, feed.subscribe() as two:
        assert await one.next() == await two.next()
    assert made == [1]


async def test_closing_lets_everyone_read_what_is_queued_and_go() -> None:
    feed = Feed(dict)
    with feed.subscribe() as browser:
        await browser.next()
        feed.publish({"last": 1})
        feed.close()
        feed.close()
        assert parse(await browser.next())[0] == "delta"
        assert await browser.next() is None
    with feed.subscribe() as late:
        assert parse(await late.next())[0] == "snapshot"
        assert await late.next() is None


async def test_a_reader_waits_until_there_is_news() -> None:
    feed = Feed(dict)
    with feed.subscribe() as browser:
        await browser.next()
        waiting = asyncio.create_task(browser.next())
        await asyncio.sleep(0)
        assert not waiting.done()
        feed.publish({})
        assert parse(await waiting)[0] == "delta"


def test_the_feed_knows_when_it_is_watched_and_when_it_is_full() -> None:
    feed = Feed(dict)
    assert not feed.watched
    contexts = [feed.subscribe() for _ in range(BROWSERS)]
    for context in contexts:
        assert not feed.full
        context.__enter__()
    assert feed.full and feed.watched
    for context in contexts:
        context.__exit__(None, None, None)
    assert not feed.watched


@given(st.lists(st.sampled_from(["publish", "read"]), max_size=120))
def test_whatever_a_browser_misses_it_ends_up_with_the_same_state(moves: list[str]) -> None:
    async def play() -> None:
        state: dict[str, int] = {}
        seen: dict[str, int] = {}
        feed = Feed(lambda: state)
        with feed.subscribe() as browser:
            pending = 1
            for move in moves:
                if move == "publish":
                    key, value = f"k{len(state) % 7}", feed.sequence
                    state[key] = value
                    feed.publish({key: value})
                    pending = min(pending + 1, QUEUE)
                elif pending:
                    pending = await take(browser, seen, feed)
            feed.close()
            while (message := await browser.next()) is not None:
                apply(seen, message)
        assert seen == state

    asyncio.run(play())


async def take(browser: Subscriber, seen: dict[str, int], feed: Feed) -> int:
    """Read one message; how many more there are for sure."""
    number = apply(seen, await browser.next())
    return min(feed.sequence - number, 1)


def apply(seen: dict[str, int], message: bytes | None) -> int:
    kind, number, content = parse(message)
    if kind == "snapshot":
        seen.clear()
    seen.update(content)
    return number
