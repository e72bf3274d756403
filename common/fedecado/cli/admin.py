"""What the operator's commands share: a small blocking client of a coordinator's AdminService.

Blocking on purpose: each of these commands does one thing at a time, and Ctrl-C then just works.
"""

import argparse
import math
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, NamedTuple, NoReturn, Self, final

import grpc

from fedecado.cli.bearer import TOKEN_VARIABLE, Bearer, add_token, token_of
from fedecado.cli.tls_flags import add_tls, tls_of
from fedecado.common.errors import ConfigError, FedecadoError, VersionError
from fedecado.common.timeouts import Timeouts
from fedecado.common.tls import ClientTls, is_loopback
from fedecado.common.transport import open_channel
from fedecado.common.wire import BulkChunk, parse_model_response
from fedecado.v1 import admin_pb2 as pb
from fedecado.v1.admin_pb2_grpc import AdminServiceStub

COORDINATOR_VARIABLE: Final = "FEDECADO_WORKER__COORDINATOR"
DEFAULT_COORDINATOR: Final = "localhost:50051"
PAGE: Final = 500
"""Clients per call."""
AGAIN_SECONDS: Final = 1.0
"""Pause before a watched coordinator that went away is called again."""


def add_coordinator(parser: argparse.ArgumentParser) -> None:
    """The flag that says which coordinator is meant."""
    parser.add_argument(
        "--coordinator",
        metavar="HOST:PORT",
        type=address,
        default=os.environ.get(COORDINATOR_VARIABLE) or DEFAULT_COORDINATOR,
        help=f"where the coordinator listens (default ${COORDINATOR_VARIABLE}, else {DEFAULT_COORDINATOR})",
    )
    add_tls(parser)
    add_token(parser)


def address(text: str) -> str:
    """`host:port`, `[IPv6]:port` or a gRPC target with a scheme, as it is; else a ConfigError."""
    match = re.fullmatch(r"(?:[^\s:/\[\]]+|\[[0-9A-Fa-f:.%\w]+\]):(\d{1,5})", text)
    if re.match(r"(dns|ipv4|ipv6|unix|unix-abstract):\D", text) or (match and 0 < int(match[1]) < 65536):
        return text
    raise ConfigError(f"{text!r} is no address; write HOST:PORT, as in {DEFAULT_COORDINATOR}")


class Away(NamedTuple):
    """A watched coordinator cannot be reached at the moment."""

    reason: str


@final
class Admin:
    """Calls to one coordinator; what goes wrong becomes a `FedecadoError` that says what to check."""

    def __init__(
        self,
        target: str,
        timeouts: Timeouts | None = None,
        tls: ClientTls | None = None,
        token: str | None = None,
    ) -> None:
        if token is not None and tls is None and not is_loopback(target):
            raise ConfigError(
                f"the admin token would travel to {target} in plain text; name the authority with --tls-ca"
            )
        self.target, self._timeouts = target, timeouts or Timeouts()
        self._line = open_channel(target, self._timeouts, tls)
        self._channel = self._line if token is None else grpc.intercept_channel(self._line, Bearer(token))
        self._stub = AdminServiceStub(self._channel)

    @classmethod
    def of(cls, args: argparse.Namespace) -> Self:
        """The coordinator that the flags of `add_coordinator` name."""
        return cls(args.coordinator, tls=tls_of(args), token=token_of(args))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.close()

    def status(self) -> pb.RunStatus:
        with self._explained():
            return self._stub.Status(pb.StatusRequest(), timeout=self._timeouts.answer).status

    def pause(self, reason: str) -> pb.RunStatus:
        with self._explained():
            return self._stub.Pause(pb.PauseRequest(reason=reason), timeout=self._timeouts.answer).status

    def resume(self) -> pb.RunStatus:
        with self._explained():
            return self._stub.Resume(pb.ResumeRequest(), timeout=self._timeouts.answer).status

    def stop(self, reason: str, *, now: bool) -> pb.RunStatus:
        when = pb.StopRequest.WHEN_NOW if now else pb.StopRequest.WHEN_AFTER_ROUND
        with self._explained():
            request = pb.StopRequest(when=when, reason=reason)
            return self._stub.Stop(request, timeout=self._timeouts.answer).status

    def drop(self, worker: str, reason: str) -> pb.Client:
        request = pb.DropClientRequest(worker_id=worker, reason=reason)
        with self._explained():
            return self._stub.DropClient(request, timeout=self._timeouts.answer).client

    def ban(self, worker: str, reason: str) -> pb.Client | None:
        """What is known of the worker; None if it was never there."""
        request = pb.BanClientRequest(worker_id=worker, reason=reason)
        with self._explained():
            answer = self._stub.BanClient(request, timeout=self._timeouts.answer)
        return answer.client if answer.HasField("client") else None

    def unban(self, worker: str) -> pb.Client | None:
        request = pb.UnbanClientRequest(worker_id=worker)
        with self._explained():
            answer = self._stub.UnbanClient(request, timeout=self._timeouts.answer)
        return answer.client if answer.HasField("client") else None

    def clients(self, most: int | None = None, *, tracebacks: bool = False) -> Iterator[pb.Client]:
        """Enrolled workers in order of their ids; `most` bounds their number."""
        left, after = math.inf if most is None else most, ""
        while left > 0:
            request = pb.ListClientsRequest(after=after, limit=int(min(left, PAGE)), tracebacks=tracebacks)
            with self._explained():
                page = self._stub.ListClients(request, timeout=self._timeouts.answer)
            yield from page.clients
            if not (page.has_more and page.clients):
                return
            left -= len(page.clients)
            after = page.clients[-1].worker_id

    def rounds(self, after: int) -> Iterator[pb.Round]:
        """Closed rounds with higher numbers, in order."""
        while True:
            request = pb.ListRoundsRequest(after=after, limit=PAGE)
            with self._explained():
                page = self._stub.ListRounds(request, timeout=self._timeouts.answer)
            yield from page.rounds
            if not (page.has_more and page.rounds):
                return
            after = page.rounds[-1].number

    def watch(self, interval: float = 1.0) -> Iterator[pb.RunStatus | Away]:
        """The status after every change, across restarts; ends with a coordinator whose run is over."""
        request = pb.WatchStatusRequest(min_interval_seconds=interval)
        status = None
        while True:
            try:
                for response in self._stub.WatchStatus(request):
                    status = response.status
                    yield status
                reason = "it closed the connection"
            except grpc.RpcError as error:
                if _code(error) not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                    self._raise(error)
                reason = _details(error)
            if status is not None and status.phase == pb.PHASE_FINISHED:
                return
            yield Away(reason)
            time.sleep(AGAIN_SECONDS)

    def model(self, request: pb.GetModelRequest) -> Iterator[pb.GetModelResponse | BulkChunk]:
        """The pieces of a model version as they arrive."""
        # Raw bytes: a chunk is then written to its place without a copy in between.
        call: grpc.UnaryStreamMultiCallable[pb.GetModelRequest, bytes] = self._channel.unary_stream(
            "/fedecado.v1.AdminService/GetModel",
            request_serializer=pb.GetModelRequest.SerializeToString,
            response_deserializer=None,
        )
        with self._explained():
            for data in call(request):
                yield parse_model_response(data)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            self._raise(error)

    def _raise(self, error: grpc.RpcError) -> NoReturn:
        raise explain(error, self.target) from error


def explain(error: grpc.RpcError, target: str) -> FedecadoError:
    """A failed call in words, with what to check."""
    details = _details(error)
    match _code(error):
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED:
            return FedecadoError(
                f"no coordinator answers at {target} ({details}); check that it runs, that --coordinator "
                f"names its host and port, and that no {_obstacles()} is in between"
            )
        case grpc.StatusCode.UNIMPLEMENTED:
            return VersionError(
                f"{target} does not speak this version of the protocol ({details}); "
                "check the port, and install the same fedecado on both sides"
            )
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return FedecadoError(
                f"{target} refuses this operator ({details}); check --tls-certificate, or --admin-token-file "
                f"and ${TOKEN_VARIABLE}"
            )
        case code:
            return FedecadoError(f"{target} answers: {details or code}")


def _code(error: grpc.RpcError) -> grpc.StatusCode | None:
    return error.code() if isinstance(error, grpc.Call) else None


def _details(error: grpc.RpcError) -> str:
    text = error.details() if isinstance(error, grpc.Call) else str(error)
    words = " ".join((text or "").split())
    # Of gRPC's list of attempts, the cause of the last one is what people can use.
    return words.rpartition(": ")[2] if "last error" in words else words


def _obstacles() -> str:
    """gRPC goes through a proxy that the environment names, which few expect."""
    proxies = [f"${name}" for name in ("grpc_proxy", "https_proxy", "http_proxy") if os.environ.get(name)]
    return " or ".join(["firewall", *proxies])
