"""What `fedecado doctor` looks at on the network: a port to listen on, the way to a coordinator."""

import socket
from collections.abc import Iterator
from importlib import metadata

import grpc

from fedecado.cli import health
from fedecado.cli.admin import Admin, address, explain
from fedecado.cli.checks import Check
from fedecado.cli.plain import clean, seconds_since, span
from fedecado.common.errors import ConfigError, FedecadoError
from fedecado.common.tls import ClientTls
from fedecado.v1 import PROTOCOL_MAJOR
from fedecado.v1.admin_pb2 import RunStatus

_CONNECT_SECONDS = 5.0
_SKEW_SECONDS = 2.0


def port(bind: str, *, asked: bool) -> Check:
    """Whether a coordinator could listen here; one that already does is no fault unless we were asked."""
    if bind.startswith("unix:"):
        return Check("port", "ok", f"{bind} is a local socket")
    try:
        host, number = _split(bind)
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            # As gRPC does: connections of the last run that linger are no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
            probe.listen(1)
    except ConfigError as error:
        return Check("port", "fail", str(error))
    except OSError as error:
        detail = f"cannot listen on {bind} ({error.strerror or error})"
        if not asked:
            return Check("port", "warn", f"{detail}; fine if your coordinator runs here, else choose another")
        return Check("port", "fail", f"{detail}; stop what listens there, or choose another address")
    return Check("port", "ok", f"{bind} is free to listen on")


def coordinator(target: str, tls: ClientTls | None = None, token: str | None = None) -> Iterator[Check]:
    """From the wire upwards; the first failure ends it, for what follows would fail likewise."""
    target = address(target)
    reached = _tcp(target)
    yield reached
    if reached.level == "fail":
        return
    with Admin(target, tls=tls, token=token) as admin:
        yield _health(target, tls)
        try:
            status = admin.status()
        except FedecadoError as error:
            yield Check("protocol", "fail", str(error))
            return
    yield _protocol(status)
    yield _clock(status)


def _tcp(target: str) -> Check:
    if "://" in target or target.partition(":")[0] in ("dns", "ipv4", "ipv6", "unix", "unix-abstract"):
        return Check("coordinator", "ok", f"{target} is for gRPC to resolve")
    host, number = _split(target)
    try:
        with socket.create_connection((host, number), timeout=_CONNECT_SECONDS):
            return Check("coordinator", "ok", f"{target} takes TCP connections")
    except socket.gaierror as error:
        detail = f"{host} has no address ({error.strerror}); check the name and this machine's DNS"
    except TimeoutError:
        detail = f"{target} does not answer within {_CONNECT_SECONDS:.0f} s; check firewalls and the address"
    except OSError as error:
        detail = (
            f"{target} cannot be reached ({error.strerror or error}); check that the coordinator runs there"
        )
    return Check("coordinator", "fail", detail)


def _health(target: str, tls: ClientTls | None) -> Check:
    with health.channel(target, tls) as channel:
        try:
            if health.check(channel, _CONNECT_SECONDS):
                return Check("health", "ok", "the coordinator serves")
        except grpc.RpcError as error:
            if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return Check(
                    "health", "warn", f"{target} has no health service; check that it is a coordinator"
                )
            return Check("health", "fail", str(explain(error, target)))
    return Check(
        "health", "warn", "the coordinator is up but does not serve yet, or shuts down; look at its log"
    )


def _protocol(status: RunStatus) -> Check:
    here, there = metadata.version("fedecado"), clean(status.software_version)
    text = f"both speak version {PROTOCOL_MAJOR}, the coordinator with fedecado {there or 'unknown'}"
    if there and there != here:
        return Check("protocol", "warn", f"{text}, this side with {here}; the same on both is safest")
    return Check("protocol", "ok", text)


def _clock(status: RunStatus) -> Check:
    """The coordinator's moments lie in the past; one in the future tells that a clock is wrong."""
    moments = [status.started] if status.HasField("started") else []
    if status.HasField("open_round") and status.open_round.HasField("opened"):
        moments.append(status.open_round.opened)
    ahead = max((-seconds_since(moment) for moment in moments), default=0.0)
    if ahead > _SKEW_SECONDS:
        return Check(
            "clock",
            "warn",
            f"the coordinator's is at least {span(ahead)} ahead of this one; set both by NTP, or times shown "
            "and certificates may be wrong (training does not depend on it)",
        )
    return Check("clock", "ok", "nothing points to a difference")


def _split(text: str) -> tuple[str, int]:
    host, _, number = text.rpartition(":")
    if not host or not number.isdecimal() or int(number) > 65535:
        raise ConfigError(f"{text!r} is no address; write HOST:PORT, as in 0.0.0.0:50051")
    return host.strip("[]"), int(number)
