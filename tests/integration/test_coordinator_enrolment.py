"""Workers that have a token get a certificate, keep it fresh, and lose it; operators show a token."""

import asyncio
import datetime
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from protocol_client import LAYOUT, ProtocolClient
from test_coordinator_tls import files

from fedecado.cli.main import main
from fedecado.client import joining, renewal
from fedecado.client.credential import IDENTITY, KEY, Credential, new_key, signing_request
from fedecado.common.certificates import issue, load_certificate, make_authority
from fedecado.common.errors import ConfigError, IdentityError
from fedecado.common.invitation import Invitation
from fedecado.common.private_files import write_private
from fedecado.common.revocation import revoke_certificates
from fedecado.common.timeouts import Timeouts
from fedecado.common.tls import ClientTls, ServerTrust
from fedecado.common.tokens import create, tokens
from fedecado.common.transport import open_async_channel
from fedecado.server.coordinator.admin_token import AdminToken
from fedecado.server.coordinator.enrolment import Enrolment
from fedecado.server.coordinator.process import Coordinator
from fedecado.v1 import admin_pb2, admin_pb2_grpc, enrol_pb2, enrol_pb2_grpc
from fedecado.v1 import session_pb2 as pb

ADMIN_TOKEN = "correct-horse-battery-staple"  # noqa: S105 - nobody else's
TIMEOUTS = Timeouts(10.0)
Enter = Callable[..., AbstractAsyncContextManager[Coordinator]]


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    folder = tmp_path / "certs"
    make_authority(folder)
    issue(folder, "coordinator", hosts=["127.0.0.1", "localhost"])
    return folder


@pytest.fixture
def admin_file(tmp_path: Path) -> Path:
    path = tmp_path / "admin.token"
    write_private(path, ADMIN_TOKEN.encode())
    return path


@pytest.fixture
def enter(start: Any, certs: Path, admin_file: Path) -> Enter:
    """`async with enter() as coordinator` runs one with a door."""

    @asynccontextmanager
    async def run(**rules: Any) -> AsyncIterator[Coordinator]:
        plan = {
            "tls": files(certs, "coordinator"),
            "enrolment": Enrolment("127.0.0.1:0", certs, datetime.timedelta(hours=1)),
            "admin_token": AdminToken.from_file(admin_file),
        }
        async with start(plan=plan, **rules) as coordinator:
            yield coordinator

    return run


def token_file(certs: Path, name: str, authority: Path | None = None, **options: Any) -> Path:
    path = certs.parent / f"{name}.token"
    ca = (authority or certs) / "ca.pem"
    write_private(path, Invitation(create(certs, name, **options), ca.read_bytes()).text().encode())
    return path


async def join(coordinator: Coordinator, token: Path, folder: Path, wanted: str = "") -> Credential:
    assert coordinator.door is not None
    door = joining.Door(coordinator.door.address, token)
    credential = await joining._enrol(door, folder, wanted, TIMEOUTS)
    assert credential is not None
    return credential


async def call(address: str, tls: ClientTls, token: str | None = None) -> Any:
    """Ask for the status; the answer, or the code of the refusal."""
    metadata = () if token is None else (("authorization", f"Bearer {token}"),)
    async with open_async_channel(address, TIMEOUTS, tls) as channel:
        stub: Any = admin_pb2_grpc.AdminServiceStub(channel)
        try:
            return await stub.Status(admin_pb2.StatusRequest(), metadata=metadata, timeout=10)
        except grpc.aio.AioRpcError as error:
            return error.code()


async def test_a_worker_with_a_token_gets_a_certificate_and_trains_with_it(
    enter: Enter, certs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = token_file(certs, "worker-0")
    caplog.set_level(logging.DEBUG)
    async with enter() as coordinator:
        credential = await join(coordinator, token, tmp_path / "me")
        assert credential.worker_id == "worker-0"
        assert {path.stat().st_mode & 0o777 for path in credential.folder.iterdir()} == {0o600}
        assert not (credential.folder / KEY).exists()
        async with ProtocolClient(coordinator.address, "worker-0", LAYOUT, credential.tls) as client:
            await client.hello()
            await client.send_initial()
            await client.work()
        async with ProtocolClient(coordinator.address, "worker-1", LAYOUT, credential.tls) as client:
            refused = await client.hello(expect=pb.Refused)
            assert refused.reason == pb.Refused.REASON_IDENTITY
        with pytest.raises(IdentityError, match="used 1 times"):
            await join(coordinator, token, tmp_path / "another")
    assert token.read_text().splitlines()[0] not in caplog.text


async def test_a_token_is_not_shown_to_a_coordinator_of_another_authority(
    enter: Enter, certs: Path, tmp_path: Path
) -> None:
    make_authority(tmp_path / "other")
    token = token_file(certs, "worker-0", authority=tmp_path / "other")
    async with enter() as coordinator:
        assert coordinator.door is not None
        write_private(tmp_path / "me" / "ca.pem", (tmp_path / "other" / "ca.pem").read_bytes())
        request = enrol_pb2.EnrolRequest(token=token.read_text().splitlines()[0])
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await joining._ask(coordinator.door.address, tmp_path / "me", request, TIMEOUTS)
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    assert tokens(certs)[0].used == 0


async def test_a_workers_certificate_cannot_play_the_coordinator(
    start: Any, certs: Path, tmp_path: Path
) -> None:
    """Even if it is called like the coordinator's host: it is for clients."""
    issue(certs, "localhost")
    issue(certs, "admin")
    for name, refused in (("coordinator", False), ("localhost", True)):
        async with start(plan={"tls": files(certs, name), "folder": tmp_path / name}) as server:
            target = server.address.replace("127.0.0.1", "localhost")
            answer = await call(target, files(certs, "admin"))
            assert (answer is grpc.StatusCode.UNAVAILABLE) is refused


async def test_what_is_in_the_folder_is_used_again_and_must_be_for_this_worker(
    enter: Enter, certs: Path, tmp_path: Path
) -> None:
    async with enter() as coordinator:
        credential = await join(coordinator, token_file(certs, "worker-0"), tmp_path / "me")
    nowhere = joining.Door("127.0.0.1:1", None)

    async def joined(folder: Path, wanted: str) -> Credential | None:
        return await asyncio.to_thread(joining.join, nowhere, folder, wanted, TIMEOUTS)

    assert await joined(tmp_path / "me", "") == credential
    with pytest.raises(ConfigError, match=r"join\.folder"):
        await joined(tmp_path / "me", "worker-1")
    with pytest.raises(ConfigError, match=r"join\.token_file"):
        await joined(tmp_path / "empty", "")


async def test_a_renewal_makes_a_new_key_and_certificate_for_the_same_worker(
    enter: Enter, certs: Path, tmp_path: Path
) -> None:
    async with enter() as coordinator:
        credential = await join(coordinator, token_file(certs, "worker-0"), tmp_path / "me")
        before = load_certificate(tmp_path / "me" / IDENTITY)
        async with ProtocolClient(coordinator.address, "worker-0", LAYOUT, credential.tls) as client:
            await client.hello()
            await renewal.renew(credential, coordinator.address, TIMEOUTS)
            after = load_certificate(tmp_path / "me" / IDENTITY)
            assert after.serial_number != before.serial_number
            assert after.public_key() != before.public_key()
            await client.send_initial()  # the session stands meanwhile
        async with ProtocolClient(coordinator.address, "worker-0", LAYOUT, credential.tls) as client:
            await client.hello()


async def test_a_certificate_is_renewed_when_it_is_due_and_again_after_a_failure(
    enter: Enter, certs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 4:
            raise asyncio.CancelledError

    monkeypatch.setattr(renewal, "sleep", sleep)
    targets = iter(["127.0.0.1:1"])
    renew = renewal.renew

    async def failing_once(credential: Credential, target: str, timeouts: Timeouts) -> Credential:
        return await renew(credential, next(targets, target), Timeouts(1.0))

    monkeypatch.setattr(renewal, "renew", failing_once)
    async with enter() as coordinator:
        credential = await join(coordinator, token_file(certs, "worker-0"), tmp_path / "me")
        before = load_certificate(tmp_path / "me" / IDENTITY)
        due = replace(credential, issued=time.time() - 7200)
        with pytest.raises(asyncio.CancelledError):
            await renewal.keep_fresh(due, coordinator.address, TIMEOUTS)
    assert load_certificate(tmp_path / "me" / IDENTITY).serial_number != before.serial_number
    assert waits[0] == 0.0
    assert waits[1] == pytest.approx((credential.ends - time.time()) / 10, rel=0.2), "a failure"
    assert waits[2] > 1800, "the new one is not due for long"


async def test_a_session_ends_with_its_certificate_and_the_worker_may_come_back_with_a_new_one(
    enter: Enter, certs: Path, tmp_path: Path
) -> None:
    async with enter() as coordinator:
        credential = await join(coordinator, token_file(certs, "worker-0"), tmp_path / "me")
        async with ProtocolClient(coordinator.address, "worker-0", LAYOUT, credential.tls) as client:
            await client.hello()
            member = coordinator.run.members.by_id["worker-0"]
            assert member.session is not None
            assert member.session.peer is not None
            assert coordinator._guard is not None
            coordinator._guard.look_at(coordinator.run, member)
            assert member.session is not None, "a good certificate is left alone"
            member.session.peer = replace(member.session.peer, ends=time.time() - 1)
            coordinator._guard.look_at(coordinator.run, member)
            await client.expect(pb.RequestInitialState)
            bye = await client.expect(pb.CoordinatorBye)
            assert "ended" in bye.message


async def test_a_revoked_worker_is_cut_off_and_neither_returns_nor_renews(
    enter: Enter, certs: Path, tmp_path: Path
) -> None:
    async with enter() as coordinator:
        credential = await join(coordinator, token_file(certs, "worker-0"), tmp_path / "me")
        async with ProtocolClient(coordinator.address, "worker-0", LAYOUT, credential.tls) as client:
            await client.hello()
            await client.expect(pb.RequestInitialState)
            revoke_certificates(certs, "worker-0")
            assert coordinator._guard is not None
            watching = asyncio.create_task(coordinator._guard.watch(coordinator.run, 0.01))
            refused = await client.expect(pb.Refused)
            watching.cancel()
            assert "revoked" in refused.message
            assert not refused.retry
        async with ProtocolClient(coordinator.address, "worker-0", LAYOUT, credential.tls) as client:
            assert "revoked" in (await client.expect(pb.Refused)).message
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await renewal.renew(credential, coordinator.address, TIMEOUTS)
        assert error.value.code() is grpc.StatusCode.PERMISSION_DENIED
        fresh = await join(coordinator, token_file(certs, "worker-0"), tmp_path / "again")
        async with ProtocolClient(coordinator.address, "worker-0", LAYOUT, fresh.tls) as client:
            await client.hello()


async def test_a_list_that_is_forged_or_gone_takes_no_revocation_back(
    enter: Enter, certs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issue(certs, "admin")
    revoke_certificates(certs, "admin")
    make_authority(tmp_path / "other")
    issue(tmp_path / "other", "admin")
    revoke_certificates(tmp_path / "other", "admin")
    async with enter() as coordinator:
        revoked = files(certs, "admin")
        assert await call(coordinator.address, revoked) is grpc.StatusCode.UNAUTHENTICATED
        (tmp_path / "other" / "crl.pem").replace(certs / "crl.pem")
        assert await call(coordinator.address, revoked) is grpc.StatusCode.UNAUTHENTICATED
        assert "not signed by the authority" in caplog.text
        (certs / "crl.pem").unlink()
        assert await call(coordinator.address, revoked) is grpc.StatusCode.UNAUTHENTICATED
        issue(certs, "admin")
        assert not isinstance(await call(coordinator.address, files(certs, "admin")), grpc.StatusCode)


async def test_an_operator_shows_a_certificate_or_the_token(
    enter: Enter, certs: Path, admin_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    issue(certs, "w1")
    refused = grpc.StatusCode.UNAUTHENTICATED
    async with enter() as coordinator:
        assert coordinator.door is not None
        door, inside, trust = coordinator.door.address, coordinator.address, ServerTrust(certs / "ca.pem")
        worker = files(certs, "w1")
        assert not isinstance(await call(door, trust, ADMIN_TOKEN), grpc.StatusCode)
        assert await call(door, trust) is refused
        assert await call(door, trust, f"{ADMIN_TOKEN}x") is refused
        assert not isinstance(await call(inside, worker, ADMIN_TOKEN), grpc.StatusCode)
        assert await call(inside, worker) is grpc.StatusCode.PERMISSION_DENIED
        assert await call(inside, worker, "wrong") is refused
        flags = ["--coordinator", door, "--tls-ca", str(certs / "ca.pem")]
        shown = ["--admin-token-file", str(admin_file)]
        assert await asyncio.to_thread(main, ["status", *flags, *shown]) == 0
        assert await asyncio.to_thread(main, ["status", *flags]) == 1
        assert "--admin-token-file" in capsys.readouterr().err


async def test_a_token_guards_a_coordinator_without_tls_and_is_not_sent_in_plain_text_elsewhere(
    start: Any, admin_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with start(plan={"admin_token": AdminToken.from_file(admin_file)}) as coordinator:
        argv = ["status", "--coordinator", coordinator.address]
        assert await asyncio.to_thread(main, argv) == 1
        assert await asyncio.to_thread(main, [*argv, "--admin-token-file", str(admin_file)]) == 0
        monkeypatch.setenv("FEDECADO_ADMIN_TOKEN", ADMIN_TOKEN)
        assert await asyncio.to_thread(main, argv) == 0
    assert main(["status", "--coordinator", "far.example:1"]) == 2
    said = capsys.readouterr()
    assert "plain text" in said.err
    assert ADMIN_TOKEN not in said.err + said.out


async def test_a_door_takes_no_large_messages_and_gives_no_certificate_for_a_bad_request(
    enter: Enter, certs: Path
) -> None:
    token = create(certs, "worker-0")
    csr = signing_request(new_key())
    requests = [
        (enrol_pb2.EnrolRequest(token=token, csr=b"x" * 100_000), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (enrol_pb2.EnrolRequest(token=token, csr=b"x"), grpc.StatusCode.PERMISSION_DENIED),
        (enrol_pb2.EnrolRequest(token=token[:-1], csr=csr), grpc.StatusCode.PERMISSION_DENIED),
        (enrol_pb2.EnrolRequest(token=token, csr=csr, worker_id="é"), grpc.StatusCode.PERMISSION_DENIED),
    ]
    async with enter() as coordinator:
        assert coordinator.door is not None
        trust = ServerTrust(certs / "ca.pem")
        async with open_async_channel(coordinator.door.address, TIMEOUTS, trust) as channel:
            stub: Any = enrol_pb2_grpc.EnrolServiceStub(channel)
            for request, code in requests:
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await stub.Enrol(request, timeout=10)
                assert error.value.code() is code
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await stub.Renew(enrol_pb2.RenewRequest(csr=csr), timeout=10)
            assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert tokens(certs)[0].used == 0


async def test_a_door_needs_tls(start: Any, certs: Path) -> None:
    enrolment = Enrolment("127.0.0.1:0", certs, datetime.timedelta(hours=1))
    with pytest.raises(ConfigError, match=r"enrolment\.bind needs TLS"):
        async with start(plan={"enrolment": enrolment}):
            pass
