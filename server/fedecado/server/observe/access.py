"""Who may see the page's content, and who may act.

Everyone on this machine may look; from elsewhere it takes the operators' token, unless the run is
declared public. Acting always takes the token. A browser sends it in a header that no other site can
add, so a page elsewhere cannot act in an operator's name; the checks of names keep such pages from reading,
too, when they reach a private port under a name of their own.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final, Protocol, final
from urllib.parse import urlsplit

from aiohttp import web

TRIES: Final = 5
"""Wrong tokens from one address before it has to wait."""
WAIT_SECONDS: Final = 30.0
ADDRESSES: Final = 1_000
"""Addresses with wrong tokens that are remembered; of more, the oldest are forgotten."""


class Token(Protocol):
    """The operators' secret."""

    def matches(self, presented: str) -> bool: ...


@final
class Throttle:
    """Slows down whoever guesses: after a few wrong tokens, an address is not heard for a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def wait(self, address: str) -> float:
        """Seconds until the address is heard again; 0 for now."""
        count, last = self._wrong.get(address, (0, 0.0))
        return max(0.0, last + WAIT_SECONDS - self._clock()) if count >= TRIES else 0.0

    def failed(self, address: str) -> None:
        """A wrong token came from there."""
        now = self._clock()
        count, last = self._wrong.pop(address, (0, now))
        self._wrong[address] = (1 if now - last > WAIT_SECONDS else count + 1), now
        while len(self._wrong) > ADDRESSES:
            self._wrong.popitem(last=False)


@final
class Access:
    """The rules of one site."""

    def __init__(self, token: Token | None = None, *, public: bool = False) -> None:
        self._token, self._public = token, public
        self._throttle = Throttle()
        self._own_hosts: frozenset[str] | None = None

    def bound_to(self, host: str) -> None:
        """The site listens here."""
        if _is_loopback(host):
            self._own_hosts = frozenset({"localhost", "127.0.0.1", "::1", host})

    @property
    def private(self) -> bool:
        """Whether only this machine can reach the site."""
        return self._own_hosts is not None

    @property
    def open(self) -> bool:
        """Whether anyone who reaches the site may look."""
        return self.private or self._public

    @property
    def operable(self) -> bool:
        """Whether there is a token to act with."""
        return self._token is not None

    def check_host(self, request: web.Request) -> None:
        """Answer to own names alone, lest a page elsewhere read a private port under a name of its own."""
        host = request.url.host or ""
        if self._own_hosts is not None and host not in self._own_hosts:
            raise web.HTTPForbidden(
                text=f"this dashboard answers to localhost, not to {host!r}; "
                "bind it to another address to share it\n"
            )

    def check_view(self, request: web.Request) -> None:
        """Raise unless the sender may see the run."""
        if not self.open and not self.is_operator(request):
            remedy = (
                "show the operators' token"
                if self.operable
                else "set network.admin_token_file, or observe.public if a proxy before it asks for a login"
            )
            raise web.HTTPUnauthorized(text=f"the run is not shown to everyone; {remedy}\n")

    def check_act(self, request: web.Request) -> None:
        """Raise unless the sender is an operator, and no page elsewhere speaks in an operator's name."""
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("Host"):
            raise web.HTTPForbidden(text=f"a page from {origin!r} cannot act here\n")
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="send application/json\n")
        if not self.operable:
            raise web.HTTPForbidden(text="nothing can be changed here; set network.admin_token_file\n")
        if not self.is_operator(request):
            raise web.HTTPUnauthorized(text="that takes the operators' token\n")

    def is_operator(self, request: web.Request) -> bool:
        """Whether the right token came along; an address that guesses has to wait."""
        scheme, _, presented = request.headers.get("Authorization", "").partition(" ")
        if self._token is None or scheme.lower() != "bearer":
            return False
        address = request.remote or ""
        if (wait := self._throttle.wait(address)) > 0:
            raise web.HTTPTooManyRequests(
                text=f"too many wrong tokens; try again in {wait:.0f} s\n",
                headers={"Retry-After": f"{wait + 1:.0f}"},
            )
        if self._token.matches(presented.strip()):
            return True
        self._throttle.failed(address)
        return False


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
