"""Worker processes that bring nothing but a token."""

import datetime
import signal
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from processes import Processes

from fedecado.cli.main import main
from fedecado.client.credential import keep, new_key
from fedecado.common import certificates

POINT = ("--task", "process_tasks:point", "--training-probes", "1", "--worker-threads", "1")


def aged(certs: Path, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a certificate there that is good for another hour, after ten."""
    key = new_key()
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "SKEW", datetime.timedelta(hours=10))
        authority = certificates.Authority.load(certs)
        certificate = authority.sign(key.public_key(), name, datetime.timedelta(hours=1))
    assert (folder / "ca.pem").read_bytes() == (certs / "ca.pem").read_bytes()
    keep(folder, key, certificate.public_bytes(Encoding.PEM))


async def test_a_worker_enrols_and_trains_and_renews_its_certificate_when_that_is_due(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    certs, token = processes.folder / "certs", processes.folder / "w.token"
    assert main(["certs", "init", "--folder", str(certs)]) == 0
    assert main(["certs", "issue", "coordinator", "--host", "127.0.0.1", "--folder", str(certs)]) == 0
    assert main(["tokens", "create", "worker-7", "--folder", str(certs), "-o", str(token)]) == 0
    coordinator, address = await processes.coordinator(
        *("--network-tls-ca", "certs/ca.pem", "--network-tls-certificate", "certs/coordinator.pem"),
        *("--network-tls-key", "certs/coordinator.key", "--enrolment-bind", "127.0.0.1:0"),
        *("--rounds", "none"),
    )
    door = (await coordinator.says("workers enrol on")).split()[-1]
    join = ("--coordinator", address, "--join-address", door)
    first = await processes.start("first", "worker", *join, "--join-token-file", "w.token", *POINT)
    await coordinator.says("round 1: 1 updates")
    first.send_signal(signal.SIGTERM)
    assert await first.exits() == 0
    assert token.read_text().splitlines()[0] not in processes.text()

    aged(certs, processes.folder / "identity", "worker-7", monkeypatch)
    seen = len(coordinator.lines)
    again = await processes.start("again", "worker", *join, *POINT)
    await coordinator.says("worker-7 renews its certificate", after=seen)
    await again.says("the new one is good for")
    await coordinator.says("worker-7 joins", after=seen)


async def test_a_worker_that_waits_for_the_door_ends_in_good_order(processes: Processes) -> None:
    certs, token = processes.folder / "certs", processes.folder / "w.token"
    assert main(["certs", "init", "--folder", str(certs)]) == 0
    assert main(["tokens", "create", "w", "--folder", str(certs), "-o", str(token)]) == 0
    # A token alone, so the authority has to come from the settings.
    token.write_text(token.read_text().splitlines()[0])
    flags = ("--join-address", "127.0.0.1:1", "--join-token-file", "w.token")
    lost = await processes.start("lost", "worker", *flags)
    assert await lost.exits() == 2
    await lost.says("network.tls_ca")
    waiting = await processes.start("waiting", "worker", *flags, "--network-tls-ca", "certs/ca.pem")
    await waiting.says("not enrolled at 127.0.0.1:1")
    waiting.send_signal(signal.SIGTERM)
    assert await waiting.exits() == 0
