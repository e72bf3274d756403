"""Real coordinators on real sockets, and a worker that can be told to misbehave."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import browser  # noqa: F401 - a fixture
from netns import network  # noqa: F401 - a fixture
from processes import processes  # noqa: F401 - a fixture
from protocol_client import LAYOUT, ProtocolClient

from fedecado.common.layout import Layout
from fedecado.common.timeouts import Timeouts
from fedecado.server.algorithms import Algorithm, AlgorithmName, make_algorithm
from fedecado.server.coordinator.process import Coordinator, Plan
from fedecado.server.rounds import Rules

Start = Callable[..., AbstractAsyncContextManager[Coordinator]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """`async with start(rules...) as coordinator` runs one in this process."""

    @asynccontextmanager
    async def run(
        *,
        algorithm: AlgorithmName = "fedecado",
        timeouts: Timeouts | None = None,
        plan: dict[str, Any] | None = None,
        made: Algorithm[Any] | None = None,
        **rules: Any,
    ) -> AsyncIterator[Coordinator]:
        fields = {"name": "test", "folder": tmp_path / "run", "algorithm": algorithm, "bind": "127.0.0.1:0"}
        coordinator = Coordinator(
            Plan(**{**fields, **(plan or {})}),
            Rules(**rules),
            made or make_algorithm(algorithm),
            timeouts or Timeouts(3.0),
        )
        serving = asyncio.create_task(coordinator.serve())
        ready = asyncio.create_task(coordinator.ready.wait())
        await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            ready.cancel()
            await serving
        try:
            yield coordinator
        finally:
            coordinator.stop()
            await serving

    return run


@pytest.fixture
def connect() -> Callable[..., AbstractAsyncContextManager[ProtocolClient]]:
    """`async with connect(coordinator, "w1") as client` opens a stream and says hello."""

    @asynccontextmanager
    async def open_stream(
        coordinator: Coordinator, worker: str, layout: Layout = LAYOUT, **hello: Any
    ) -> AsyncIterator[ProtocolClient]:
        async with ProtocolClient(coordinator.address, worker, layout) as client:
            await client.hello(**hello)
            yield client

    return open_stream


@pytest.fixture
def zeros() -> np.ndarray[Any, Any]:
    return np.zeros(LAYOUT.size, np.float32)
