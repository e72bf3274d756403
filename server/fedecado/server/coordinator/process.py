"""The coordinator as a process: start up, serve, shut down."""

import asyncio
import logging
import secrets
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from fedecado.common.errors import ConfigError, FedecadoError
from fedecado.common.health_port import HealthPort
from fedecado.common.layout import Layout, Vector
from fedecado.common.model_file import load_model
from fedecado.common.names import COMPACT, Compact
from fedecado.common.timeouts import Timeouts
from fedecado.common.tls import TlsFiles
from fedecado.common.transport import server_options
from fedecado.server.algorithms import Algorithm, Guarded
from fedecado.server.algorithms.fedecado import FedEcado
from fedecado.server.coordinator.about import About
from fedecado.server.coordinator.admin import AdminService
from fedecado.server.coordinator.admin_token import AdminToken
from fedecado.server.coordinator.door import Door, bind
from fedecado.server.coordinator.first_model import Begun
from fedecado.server.coordinator.gate import AdminGate
from fedecado.server.coordinator.lag import LagMeter
from fedecado.server.coordinator.models import ModelFiles
from fedecado.server.coordinator.post import Suggestions
from fedecado.server.coordinator.quotas import Limits, Quotas
from fedecado.server.coordinator.run import Run
from fedecado.server.coordinator.service import SessionService
from fedecado.server.observe.observer import Observer, Several
from fedecado.server.rounds import Engine, Rules
from fedecado.server.store import Recipe, Recovered, Retention, create, create_from, has_run, recover_as
from fedecado.v1 import admin_pb2, admin_pb2_grpc, session_pb2

if TYPE_CHECKING:
    from fedecado.common.tracing import Tracing
    from fedecado.server.coordinator.enrolment import Enrolment
    from fedecado.server.coordinator.guard import Guard
    from fedecado.server.observe.observatory import Observatory
    from fedecado.server.observe.scribe import Scribe
    from fedecado.server.observe.writers import Ledgers

log = logging.getLogger(__name__)

READY = "fedecado coordinator listens on"
SERVICES = (
    session_pb2.DESCRIPTOR.services_by_name["SessionService"].full_name,
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Plain values that a coordinator is made from."""

    name: str
    folder: Path
    algorithm: str
    bind: str = "127.0.0.1:50051"
    initial: Path | None = None
    snapshot: Path | None = None
    """A folder that `store export` wrote, to begin from."""
    evaluate_every: int = 1
    linger: float | None = 0.0
    """Seconds to go on serving the finished model; none is for ever."""
    tls: TlsFiles | None = None
    """Mutual TLS with these files; none is plain text."""
    crl: Path | None = None
    """The authority's revocation list; none is `crl.pem` beside its certificate."""
    enrolment: "Enrolment | None" = None
    """Where workers get certificates for tokens; none takes nobody in who has none."""
    admin_token: AdminToken | None = None
    """What operators may show instead of a certificate."""
    suggestions: Suggestions = field(default_factory=Suggestions)
    upload_formats: tuple[Compact, ...] = COMPACT
    """Compact formats that updates may come in."""
    recipe: Callable[[Layout], Recipe] | None = None
    """How the run is computed, given its layout; with it the run is kept in the folder and survives."""
    retention: Retention = field(default_factory=Retention)
    checkpoint_seconds: float = 30.0
    limits: Limits = field(default_factory=Limits)
    observe: str | None = None
    """Where to serve the dashboard and the metrics; none serves neither."""
    observe_public: bool = False
    """Whether whoever reaches the dashboard may see the run, beyond this machine, too."""
    trace: str | None = None
    """Where OpenTelemetry spans go; none keeps no traces."""
    health: str | None = None
    """Where to answer health checks in plain text, beside those on the main port."""
    ledgers: "Ledgers | None" = None
    """Other tools that rounds and measurements are written for."""


class Coordinator:
    """`await Coordinator(...).serve()` is the whole life of the process."""

    def __init__(self, plan: Plan, rules: Rules, algorithm: Algorithm[Any], timeouts: Timeouts) -> None:
        self._plan, self._timeouts = plan, timeouts
        self._about = About(plan.name, plan.algorithm, version("fedecado"))
        files = ModelFiles(plan.folder, run_id=f"{plan.name}-{secrets.token_hex(6)}")
        self.run = Run(
            Engine(rules),
            algorithm,
            files,
            evaluate_every=plan.evaluate_every,
            begin=None if plan.recipe is None else self._create,
            timeouts=timeouts,
        )
        self.run.handout.suggestions, self.run.upload_formats = plan.suggestions, plan.upload_formats
        self.run.durable.checkpoint_seconds = plan.checkpoint_seconds
        self.quotas = Quotas(plan.limits)
        self._admin = AdminService(self.run, self._about)
        self.lag = LagMeter()
        self.observatory: Observatory | None = None
        self._tracing: Tracing | None = None
        self._scribes: list[Scribe] = []
        plain = algorithm.inner if isinstance(algorithm, Guarded) else algorithm
        self._solver = plain.options if isinstance(plain, FedEcado) else None
        self.door: Door | None = None
        self._guard = _guard(plan)
        self._health = health.aio.HealthServicer()
        self._stop = asyncio.Event()
        self.address = ""
        self.ready = asyncio.Event()
        self.health = HealthPort(plan.health)
        self.health.ready = lambda: self.ready.is_set() and not self._stop.is_set()

    async def serve(self) -> int:
        """Serve until the run is over or the process is told to stop; the exit code."""
        # From the start on: to read a large run back takes a while, and is neither death nor deafness.
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        async with self.health:
            server = await self._start()
            aside = [asyncio.create_task(self.lag.run())]
            if self._guard is not None:
                aside.append(asyncio.create_task(self._guard.watch(self.run, self._timeouts.keepalive)))
            try:
                await self._until_over()
            finally:
                for task in aside:
                    task.cancel()
                await self._shut_down(server)
        if self.run.failure is not None:
            raise FedecadoError(f"the coordinator failed: {self.run.failure!r}; its log says more")
        return 0

    def stop(self) -> None:
        """Ask for an orderly end; a second call changes nothing."""
        self._stop.set()

    async def _start(self) -> grpc.aio.Server:
        await self._find_model()
        server = grpc.aio.server(
            options=server_options(self._timeouts, self._plan.limits.sessions),
            compression=grpc.Compression.NoCompression,
            interceptors=self._gates(),
        )
        service = SessionService(self.run, self._timeouts, self._about, self._guard, self.quotas)
        server.add_generic_rpc_handlers((service.handler(),))
        admin_pb2_grpc.add_AdminServiceServicer_to_server(self._admin, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection((*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        await self._open_door(server)
        tls = self._plan.tls
        self.address = bind(server, self._plan.bind, None if tls is None else tls.server_credentials())
        await self._observe()
        await server.start()
        for name in ("", *SERVICES):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        log.info("run %s listens on %s; %s", self._about.name, self.address, self.run.waiting_for())
        # The one line on standard output: whoever starts this process can wait for it.
        sys.stdout.write(f"{READY} {self.address}\n")
        sys.stdout.flush()
        self.ready.set()
        return server

    async def _open_door(self, server: grpc.aio.Server) -> None:
        """Take in workers that have a token, and let those that have a certificate renew it."""
        plan = self._plan
        if plan.enrolment is None:
            return
        if plan.tls is None or self._guard is None:
            raise ConfigError("enrolment.bind needs TLS: set network.tls_ca, tls_certificate and tls_key")
        from fedecado.server.coordinator.enrolment import Enroller  # loads cryptography, which few need

        enroller = Enroller(plan.enrolment.folder, plan.enrolment.life, self._guard)
        server.add_generic_rpc_handlers((enroller.inside(),))
        self.door = Door(enroller, self._admin, plan.admin_token)
        await self.door.open(plan.enrolment.bind, plan.tls, self._timeouts)
        log.info("workers enrol on %s", self.door.address)

    def _gates(self) -> tuple[AdminGate, ...]:
        if self._guard is None and self._plan.admin_token is None:
            return ()  # plain text and no token: whoever reaches the port is trusted
        return (AdminGate(self._guard, self._plan.admin_token),)

    async def _find_model(self) -> None:
        """Go on with a stored run, or start from a file; else the first worker is asked."""
        plan, files = self._plan, self.run.beside.files
        if plan.recipe is not None and await files(has_run, plan.folder):
            recovered = await files(self._recover, plan.recipe)
            if recovered.engine.finished and plan.linger == 0:
                await files(self._complete, recovered)
                recovered.store.close()
                raise ConfigError(
                    f"the run in {plan.folder} is over ({recovered.engine.finished}); choose another --name, "
                    "--coordinator-fresh to set it aside and begin anew, or --linger to serve its model"
                )
            if (unread := plan.initial or plan.snapshot) is not None:
                log.warning("the run in %s goes on; %s is not read", plan.folder, unread)
            self.run.resume(recovered, grace=self._timeouts.stall)
        elif plan.recipe is not None and plan.snapshot is not None:
            begun = await files(self._begin_from, plan.snapshot, plan.recipe)
            log.info("a new run begins where %s stood", plan.snapshot)
            self.run.resume(begun, grace=self._timeouts.stall)
        elif plan.initial is not None:
            layout, state, _ = await files(load_model, plan.initial)
            await self.run.start_from(layout, state)

    def _recover(self, recipe: Callable[[Layout], Recipe]) -> Recovered:
        return recover_as(self._plan.folder, recipe, retention=self._plan.retention)

    def _complete(self, recovered: Recovered) -> None:
        """Write the last model of a run that was killed when it was over but for that."""
        federation, left = recovered.federation, self.run.files
        left.run_id = recovered.store.run_id
        if not left.holds("last", federation.version):
            left.save("last", federation.layout, federation.central, federation.version, {})

    def _begin_from(self, snapshot: Path, recipe: Callable[[Layout], Recipe]) -> Recovered:
        plan, run_id = self._plan, self.run.files.run_id
        return create_from(snapshot, plan.folder, recipe, run_id=run_id, retention=plan.retention)

    def _create(self, layout: Layout, state: Vector) -> Begun:
        """Begin a run that is kept."""
        plan, run_id = self._plan, self.run.files.run_id
        assert plan.recipe is not None  # noqa: S101 - only then is this called
        created = create(plan.folder, plan.recipe(layout), state, run_id=run_id, retention=plan.retention)
        return created.federation, created.store

    async def _observe(self) -> None:
        """Let those look who are wanted: page, metrics, traces, other tools."""
        observers: list[Observer] = []
        if self._plan.trace is not None:
            self._trace(self._plan.trace)
        if self._plan.ledgers is not None:
            from fedecado.server.observe.writers import open_writers

            self._scribes = open_writers(self._plan.ledgers, self.run, self._about)
            observers += self._scribes
        if self._plan.observe is not None:
            self.observatory = self._make_observatory()
            await self.observatory.start(self._plan.observe)
            observers.append(self.observatory)
        if observers:
            self.run.observer = Several(observers)

    def _trace(self, to: str) -> None:
        from fedecado.common.tracing import Tracing  # first: it says which extra is missing
        from fedecado.server.observe.otel import OtelTraces

        self._tracing = Tracing(to, process="coordinator", run=self._plan.name)
        self.run.traces = OtelTraces(self._tracing.tracer)

    def _make_observatory(self) -> "Observatory":
        try:
            from fedecado.server.observe.access import Access
            from fedecado.server.observe.observatory import Observatory
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"the dashboard and the metrics need {error.name}; install fedecado[server], or leave "
                "observe.bind out"
            ) from error
        access = Access(self._plan.admin_token, public=self._plan.observe_public)
        return Observatory(self.run, self._about, self.lag, self._solver, access)

    async def _stop_observing(self) -> None:
        """Let everyone who looks write down what is left."""
        finished = self.run.engine.finished is not None
        if self.observatory is not None:
            await self.observatory.close()
        for scribe in self._scribes:
            await asyncio.to_thread(scribe.close, finished=finished)
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)

    async def _until_over(self) -> None:
        stop = asyncio.create_task(self._stop.wait())
        over = asyncio.create_task(self.run.finished.wait())
        try:
            await asyncio.wait((stop, over), return_when=asyncio.FIRST_COMPLETED)
            if over.done() and not stop.done():
                self.run.dismiss()
                await self.run.save_last()
                if self._plan.linger != 0:
                    log.info("the model can still be fetched; stop with Ctrl-C")
                    await asyncio.wait((stop,), timeout=self._plan.linger)
        finally:
            stop.cancel()
            over.cancel()

    async def _shut_down(self, server: grpc.aio.Server) -> None:
        """Tell the workers, finish what is being computed, save, and go."""
        await self._health.enter_graceful_shutdown()
        self._admin.close()
        if not self.run.engine.finished:
            log.info("shutting down; workers may come back to a new coordinator")
            self.run.shut_down("the coordinator was stopped")
        if self.door is not None:
            await self.door.close(self._timeouts.drain)
        await server.stop(grace=self._timeouts.drain)
        await self.run.beside.settle()
        path = await self.run.save_last()
        await self.run.close()
        await self._stop_observing()
        if path is not None:
            log.info("the last model is in %s", path)


def _guard(plan: Plan) -> "Guard | None":
    if plan.tls is None:
        return None
    from fedecado.server.coordinator.guard import Guard  # loads cryptography, which plain text does without

    return Guard(plan.tls.ca, plan.crl)
