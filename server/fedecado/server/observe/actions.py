"""What an operator can do from the page: pause, resume, stop, drop a worker."""

import json
import logging
from typing import Any, Final, final

from aiohttp import web

from fedecado.server.coordinator.exclusion import drop
from fedecado.server.coordinator.run import Run
from fedecado.server.observe.access import Access
from fedecado.server.rounds import Paused, Resumed, Stopped

log = logging.getLogger(__name__)

REASON: Final = "on the dashboard, by an operator"


@final
class Actions:
    """Acts on a run for those whom `access` lets."""

    def __init__(self, run: Run, access: Access) -> None:
        self._run, self._access = run, access

    def add_to(self, app: web.Application) -> None:
        """Take requests at `/actions/NAME`."""
        app.router.add_post("/actions/{name:pause|resume|stop|drop}", self._act)

    async def _act(self, request: web.Request) -> web.StreamResponse:
        self._access.check_act(request)
        try:
            asked = json.loads(await request.text() or "{}")
        except ValueError:
            raise web.HTTPBadRequest(text="that is no JSON\n") from None
        if not isinstance(asked, dict):
            raise web.HTTPBadRequest(text="send a JSON object\n")
        name = request.match_info["name"]
        log.warning("%s asked for on the dashboard from %s", name, request.remote)
        return web.json_response({"done": self._do(name, asked)})

    def _do(self, name: str, asked: dict[str, Any]) -> str:
        """Do it; what was done, in words."""
        run = self._run
        if run.engine.finished and name != "drop":
            raise web.HTTPConflict(text=f"the run is over: {run.engine.finished}\n")
        match name:
            case "pause":
                run.handle(Paused())
                return "paused; tasks under way are still taken"
            case "resume":
                run.handle(Resumed())
                return "resumed"
            case "stop" if asked.get("now") is True:
                run.handle(Stopped(f"stopped {REASON}"))
                return "stopped"
            case "stop":
                run.stop_after_round(f"stopped {REASON}")
                return "it stops when the open round has closed"
        worker = asked.get("worker")
        member = run.members.by_id.get(worker) if isinstance(worker, str) else None
        if member is None:
            raise web.HTTPNotFound(text=f"there is no worker {worker!r}\n")
        if member.session is None:
            raise web.HTTPConflict(text=f"{member.id} is not connected\n")
        drop(run, member.id, REASON)
        return f"{member.id} is dropped; it may come back by itself"
