"""The page, its events and the metrics over HTTP; `access` says who gets what."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import final

from aiohttp import web

from fedecado.common.errors import ConfigError
from fedecado.server.observe.access import Access
from fedecado.server.observe.events import Feed

PAGE = Path(__file__).parent / "dashboard"
KEEPALIVE_SECONDS = 15.0
"""A silent stream says something this often, so that proxies keep it and dead browsers are noticed."""
STALL_SECONDS = 60.0
"""A browser that takes nothing for so long is cut off."""
REQUEST_BYTES = 1 << 16
"""Nobody has more to say to this site."""
SHUTDOWN_SECONDS = 2.0
"""Time for answers under way when the site closes."""

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

Scrape = Callable[[], tuple[bytes, str]]
"""The metrics as text, and their content type."""
Prepare = Callable[[], Awaitable[None]]
"""Brings the snapshot up to date: nobody does while nobody watches."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@final
class Site:
    """Serves a feed, and metrics if there are any."""

    def __init__(
        self,
        feed: Feed,
        snapshot: Callable[[], object],
        *,
        prepare: Prepare | None = None,
        scrape: Scrape | None = None,
        access: Access | None = None,
        extend: Callable[[web.Application], None] | None = None,
    ) -> None:
        self._feed, self._snapshot, self._prepare, self._scrape = feed, snapshot, prepare, scrape
        self._access, self._extend = access or Access(), extend
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self, bind: str) -> None:
        """Listen; ConfigError if the address cannot be had."""
        host, _, port = bind.rpartition(":")
        host = host.strip("[]")
        self._access.bound_to(host)
        runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, int(port))
            await site.start()
        except (OSError, OverflowError) as error:
            await runner.cleanup()
            raise ConfigError(
                f"cannot serve the dashboard on {bind}: {error}; choose another port"
            ) from error
        self._runner = runner
        actual = runner.addresses[0][1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{actual}"

    async def close(self) -> None:
        """End all streams and stop listening. Idempotent."""
        self._feed.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=REQUEST_BYTES)
        app.router.add_get("/", self._index)
        app.router.add_get("/access", self._rights)
        app.router.add_get("/events", self._events)
        app.router.add_get("/snapshot", self._whole)
        if self._scrape is not None:
            app.router.add_get("/metrics", self._metrics)
        app.router.add_static("/page", PAGE)
        if self._extend is not None:
            self._extend(app)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._access.check_host(request)
        response = await handler(request)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def _index(self, _: web.Request) -> web.StreamResponse:
        return web.FileResponse(PAGE / "index.html")

    async def _rights(self, request: web.Request) -> web.StreamResponse:
        """What the sender may do; asked by the page before it tries."""
        operator = self._access.is_operator(request)
        rights = {
            "view": self._access.open or operator,
            "operate": operator,
            "operable": self._access.operable and self._extend is not None,
        }
        return web.json_response(rights)

    async def _whole(self, request: web.Request) -> web.StreamResponse:
        self._access.check_view(request)
        await self._ready()
        return web.json_response(self._snapshot(), dumps=lambda value: json.dumps(value, allow_nan=False))

    async def _ready(self) -> None:
        if self._prepare is not None:
            await self._prepare()

    async def _metrics(self, _: web.Request) -> web.StreamResponse:
        assert self._scrape is not None  # noqa: S101 - the route exists only then
        text, kind = self._scrape()
        return web.Response(body=text, headers={"Content-Type": kind})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        self._access.check_view(request)
        if self._feed.full:
            raise web.HTTPServiceUnavailable(text="too many browsers watch this run; close some\n")
        await self._ready()
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        with self._feed.subscribe() as subscriber, suppress(ConnectionError, TimeoutError):
            await _write(response, b"retry: 1000\n\n")
            while True:
                try:
                    async with asyncio.timeout(KEEPALIVE_SECONDS):
                        message = await subscriber.next()
                except TimeoutError:
                    message = b": still here\n\n"
                if message is None:
                    break
                await _write(response, message)
        return response


async def _write(response: web.StreamResponse, message: bytes) -> None:
    async with asyncio.timeout(STALL_SECONDS):
        await response.write(message)
