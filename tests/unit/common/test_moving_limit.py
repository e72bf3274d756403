"""A limit that moves: it ends a wait when its moment has passed, and only then."""

import asyncio
import math

import pytest

from fedecado.common.moving_limit import MovingLimit


async def test_a_wait_ends_when_the_limit_has_passed() -> None:
    clock = asyncio.get_running_loop().time
    with pytest.raises(TimeoutError):
        async with MovingLimit() as limit:
            limit.move(clock() + 0.02)
            await asyncio.Future()


async def test_a_limit_that_moved_on_ends_a_wait_no_earlier() -> None:
    clock = asyncio.get_running_loop().time
    until = clock() + 0.05
    with pytest.raises(TimeoutError):
        async with MovingLimit() as limit:
            limit.move(clock() + 0.01)
            limit.move(until)
            await asyncio.Future()
    assert clock() >= until - 0.002


async def test_a_limit_may_move_to_an_earlier_moment() -> None:
    clock = asyncio.get_running_loop().time
    began = clock()
    with pytest.raises(TimeoutError):
        async with MovingLimit() as limit:
            limit.move(began + 3600)
            limit.move(began + 0.01)
            async with asyncio.timeout(60):
                await asyncio.Future()
    assert clock() < began + 60


async def test_no_limit_holds_once_it_was_lifted_or_left() -> None:
    loop = asyncio.get_running_loop()
    passed = loop.create_future()
    async with MovingLimit() as limit:
        limit.move(loop.time() + 0.01)
        limit.move(math.inf)
        loop.call_later(0.03, passed.set_result, None)
        await passed
        limit.move(loop.time() + 0.01)
    passed = loop.create_future()
    loop.call_later(0.03, passed.set_result, None)
    await passed
