"""Mutual TLS on a real coordinator: who gets in, as whom, and what an operator may do."""

import asyncio
import datetime
import stat
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from protocol_client import LAYOUT, ProtocolClient

from fedecado.cli.main import main
from fedecado.common import certificates
from fedecado.common.certificates import expiry, issue, load_certificate, make_authority
from fedecado.common.errors import ConfigError
from fedecado.common.timeouts import Timeouts
from fedecado.common.tls import TlsFiles, is_loopback, require_safe_bind
from fedecado.common.transport import open_async_channel
from fedecado.v1 import admin_pb2, admin_pb2_grpc
from fedecado.v1 import session_pb2 as pb


def files(folder: Path, name: str) -> TlsFiles:
    return TlsFiles(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    folder = tmp_path / "certs"
    make_authority(folder)
    issue(folder, "coordinator", hosts=["127.0.0.1", "localhost"])
    for name in ("w1", "w2", "admin"):
        issue(folder, name)
    return folder


async def test_a_worker_with_its_certificate_trains(start: Any, certs: Path) -> None:
    async with start(plan={"tls": files(certs, "coordinator")}) as coordinator:
        async with ProtocolClient(coordinator.address, "w1", LAYOUT, files(certs, "w1")) as client:
            await client.hello()
            await client.send_initial()
            await client.work()


async def test_a_session_cannot_claim_another_id(start: Any, certs: Path) -> None:
    async with start(plan={"tls": files(certs, "coordinator")}) as coordinator:
        async with ProtocolClient(coordinator.address, "w2", LAYOUT, files(certs, "w1")) as client:
            refused = await client.hello(expect=pb.Refused)
            assert refused.reason == pb.Refused.REASON_IDENTITY
            assert not refused.retry


async def test_without_a_certificate_of_the_authority_nobody_gets_in(
    start: Any, certs: Path, tmp_path: Path
) -> None:
    make_authority(tmp_path / "other")
    issue(tmp_path / "other", "w1")
    stranger = TlsFiles(certs / "ca.pem", tmp_path / "other" / "w1.pem", tmp_path / "other" / "w1.key")
    async with start(plan={"tls": files(certs, "coordinator")}) as coordinator:
        for tls in (None, stranger):
            async with ProtocolClient(coordinator.address, "w1", LAYOUT, tls) as client:
                with pytest.raises((grpc.aio.AioRpcError, asyncio.InvalidStateError)):
                    await client.hello(expect=None)
                    await client.receive()


async def test_admin_calls_need_an_admin_certificate(start: Any, certs: Path) -> None:
    async with start(plan={"tls": files(certs, "coordinator")}) as coordinator:
        for name, allowed in (("w1", False), ("admin", True)):
            async with open_async_channel(coordinator.address, Timeouts(3.0), files(certs, name)) as channel:
                admin = admin_pb2_grpc.AdminServiceStub(channel)
                calls: list[Any] = [
                    admin.Status(admin_pb2.StatusRequest()),
                    admin.Pause(admin_pb2.PauseRequest()),
                    admin.WatchStatus(admin_pb2.WatchStatusRequest()).read(),
                ]
                for call in calls:
                    if allowed:
                        await call
                    else:
                        with pytest.raises(grpc.aio.AioRpcError) as denied:
                            await call
                        assert denied.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_renewed_certificate_is_used_without_a_restart(start: Any, certs: Path) -> None:
    async with start(plan={"tls": files(certs, "coordinator")}) as coordinator:
        before = await _shown(coordinator.address, certs)
        issue(certs, "coordinator", hosts=["127.0.0.1"])
        after = await _shown(coordinator.address, certs)
        assert before != after


async def _shown(address: str, certs: Path) -> bytes:
    """The certificate that the coordinator shows."""
    import ssl

    context = ssl.create_default_context(cafile=str(certs / "ca.pem"))
    context.load_cert_chain(certs / "w1.pem", certs / "w1.key")
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return shown


def test_certificate_files_are_private(certs: Path) -> None:
    for path in certs.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_an_authority_is_not_made_twice_and_names_are_checked(certs: Path) -> None:
    with pytest.raises(ConfigError, match="exists"):
        make_authority(certs)
    for name in ("", "a/b", "x" * 65):
        with pytest.raises(ConfigError, match="certificate name"):
            issue(certs, name)
    with pytest.raises(ConfigError, match="days"):
        issue(certs, "w1", days=0)


def test_the_certs_command_makes_issues_and_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["certs", "init"]) == 0
    assert main(["certs", "issue", "coordinator", "--host", "localhost"]) == 0
    assert main(["certs", "issue", "w1", "w2", "--days", "3"]) == 0
    assert main(["certs", "list"]) == 0
    assert "w2" in capsys.readouterr().out
    assert expiry(tmp_path / "certs" / "w1.pem") < expiry(tmp_path / "certs" / "coordinator.pem")
    assert main(["certs", "issue"]) == 2


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("unix:/tmp/x", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.1.2.3:1", False),
        ("host.example:1", False),
    ],
)
def test_listening_beyond_this_machine_needs_tls_or_a_word(address: str, local: bool) -> None:
    assert is_loopback(address) is local
    require_safe_bind(address, None, insecure=True)
    require_safe_bind(address, TlsFiles(Path(), Path(), Path()), insecure=False)
    if local:
        require_safe_bind(address, None, insecure=False)
    else:
        with pytest.raises(ConfigError, match="no TLS"):
            require_safe_bind(address, None, insecure=False)


@pytest.mark.parametrize(
    "command",
    [
        ("coordinator", "--bind", "0.0.0.0:0"),
        ("worker", "--coordinator", "far.example:1", "--worker-id", "w1"),
    ],
)
def test_no_command_goes_beyond_this_machine_without_tls_by_itself(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*command]) == 2
    assert "there is no TLS" in capsys.readouterr().err
    assert not list(tmp_path.iterdir()), "nothing was begun"


def test_rotating_makes_a_new_key_for_the_same_name_hosts_and_life(certs: Path) -> None:
    issue(certs, "coordinator", hosts=["127.0.0.1", "fl.example.org"], days=30)
    before = {name: (certs / f"{name}.key").read_bytes() for name in ("coordinator", "w1", "w2", "ca")}
    old = load_certificate(certs / "coordinator.pem")
    assert main(["certs", "rotate", "coordinator", "--folder", str(certs)]) == 0
    new = load_certificate(certs / "coordinator.pem")
    alternatives = [c.extensions.get_extension_for_class(x509.SubjectAlternativeName) for c in (old, new)]
    assert alternatives[0] == alternatives[1]
    assert (old.subject, old.issuer) == (new.subject, new.issuer)
    life = [c.not_valid_after_utc - c.not_valid_before_utc for c in (old, new)]
    assert life[0] == life[1]
    after = {name: (certs / f"{name}.key").read_bytes() for name in before}
    assert {name for name in before if before[name] != after[name]} == {"coordinator"}


def test_rotating_without_names_takes_those_that_are_due(
    certs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serial = load_certificate(certs / "w1.pem").serial_number
    assert main(["certs", "rotate", "--folder", str(certs)]) == 0
    assert "nothing is due: none of 4" in capsys.readouterr().out
    assert load_certificate(certs / "w1.pem").serial_number == serial
    with monkeypatch.context() as patch:  # begun ten days ago, good for one more
        patch.setattr(certificates, "SKEW", datetime.timedelta(days=10))
        issue(certs, "w1", days=1)
    serial = load_certificate(certs / "w1.pem").serial_number
    others = {name: (certs / f"{name}.pem").read_bytes() for name in ("coordinator", "w2", "admin")}
    assert main(["certs", "rotate", "--folder", str(certs)]) == 0
    assert load_certificate(certs / "w1.pem").serial_number != serial
    assert others == {name: (certs / f"{name}.pem").read_bytes() for name in others}


def test_tls_takes_three_files_or_none(tmp_path: Path) -> None:
    assert TlsFiles.choose(None, None, None) is None
    with pytest.raises(ConfigError, match="tls_key"):
        TlsFiles.choose(tmp_path, tmp_path, None)
    missing = tmp_path / "missing.pem"
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        TlsFiles(missing, missing, missing).channel_credentials()
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ConfigError, match="no PEM"):
        TlsFiles(tmp_path / "text", tmp_path / "text", tmp_path / "text").server_credentials()
