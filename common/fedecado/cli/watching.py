"""Follow a run through its coordinator's Admin service, and show it live."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import grpc
from rich.console import Console
from rich.live import Live

from fedecado.cli import picture
from fedecado.cli.progress import RoundProgress
from fedecado.common.errors import FedecadoError
from fedecado.common.timeouts import Timeouts
from fedecado.common.transport import channel_options
from fedecado.simulator.history import ClientRecord, History, RoundRecord
from fedecado.v1 import admin_pb2 as pb
from fedecado.v1.admin_pb2_grpc import AdminServiceStub
from fedecado.v1.session_pb2 import Role

CLIENTS_SHOWN = 20
PAGE = 500


class Watcher:
    """A run seen from outside."""

    def __init__(self, address: str, rounds: int | None) -> None:
        self._address, self._rounds = address, rounds
        self._channel = grpc.aio.insecure_channel(address, options=channel_options(Timeouts()))
        self._admin = AdminServiceStub(self._channel)
        self.begun = False
        """Whether the first round was seen to be open."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    async def show(self) -> None:
        """Show the run until it is finished."""
        with self._explained():
            finished = await (self._show_live() if sys.stderr.isatty() else self._show_lines())
        if not finished:
            raise FedecadoError(f"the coordinator at {self._address} ended before the run was over")

    async def rounds(self) -> list[pb.Round]:
        """Every closed round."""
        found: list[pb.Round] = []
        while True:
            after = found[-1].number if found else 0
            with self._explained():
                page = await self._admin.ListRounds(pb.ListRoundsRequest(after=after, limit=PAGE))
            found += page.rounds
            if not page.has_more:
                return found

    async def clients(self) -> list[pb.Client]:
        """Every trainer."""
        found: list[pb.Client] = []
        more = True
        while more:
            after = found[-1].worker_id if found else ""
            with self._explained():
                page = await self._admin.ListClients(pb.ListClientsRequest(after=after, limit=PAGE))
            found += page.clients
            more = page.has_more
        return [client for client in found if client.role == Role.ROLE_TRAINER]

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise FedecadoError(f"lost the coordinator at {self._address}: {error.details()}") from error

    async def _show_live(self) -> bool:
        with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
            async for update in self._admin.WatchStatus(pb.WatchStatusRequest(min_interval_seconds=0.25)):
                listed = await self._admin.ListClients(pb.ListClientsRequest(limit=CLIENTS_SHOWN))
                self._note(update.status)
                live.update(picture.run_picture(update.status, listed.clients, self._address), refresh=True)
                if update.status.phase == pb.PHASE_FINISHED:
                    return True
        return False

    async def _show_lines(self) -> bool:
        with RoundProgress(self._rounds) as progress:
            async for update in self._admin.WatchStatus(pb.WatchStatusRequest(min_interval_seconds=0.5)):
                self._note(update.status)
                progress.show(update.status.rounds_closed, dict(sorted(update.status.latest.metrics.items())))
                if update.status.phase == pb.PHASE_FINISHED:
                    return True
        return False

    def _note(self, status: pb.RunStatus) -> None:
        self.begun = self.begun or status.rounds_closed > 0 or status.HasField("open_round")


def history_of(rounds: list[pb.Round], clients: Sequence[pb.Client] = ()) -> History:
    """Closed rounds as the simulator records them, so that both can be drawn together."""
    history, time = History(ended="finished"), 0.0
    history.clients = [
        ClientRecord(
            id=client.worker_id,
            samples=client.samples,
            updates=client.updates_accepted,
            round=client.last_round,
            window=client.last_window or None,
            device=client.device,
            error=client.last_error.message if client.HasField("last_error") else "",
        )
        for client in clients
    ]
    start = rounds[0].opened.ToMicroseconds() if rounds else 0
    for closed in rounds:
        time += closed.window
        history.rounds.append(
            RoundRecord(
                round=closed.number,
                clock=(closed.closed.ToMicroseconds() - start) / 1e6,
                time=time,
                updates=len(closed.worker_ids),
                staleness=closed.late_updates / max(1, len(closed.worker_ids)),
                rate=closed.rate,
                loss_before=closed.loss_before if closed.HasField("loss_before") else float("nan"),
                loss_after=closed.loss_after if closed.HasField("loss_after") else float("nan"),
                metrics=dict(sorted(closed.evaluation.metrics.items())),
                details={"steps": closed.steps_accepted, "solve_seconds": closed.solve_seconds},
            )
        )
    return history
