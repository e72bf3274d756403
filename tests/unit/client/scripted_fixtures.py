"""Fixtures around `scripted_coordinator`, for modules that name this one in `pytest_plugins`."""

import logging
from collections.abc import AsyncIterator, Iterator

import pytest
from scripted_coordinator import LIMIT, Coordinator, Signs, Station


@pytest.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    coordinator = await Coordinator().start()
    yield coordinator
    await coordinator.kill()


@pytest.fixture
async def station(coordinator: Coordinator) -> AsyncIterator[Station]:
    station = Station(coordinator)
    yield station
    await station.background.close(LIMIT)
    assert station.background.ended


@pytest.fixture
def signs() -> Iterator[Signs]:
    handler, logger = Signs(), logging.getLogger("fedecado.client.running")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
