"""Hosts of their own on this machine: network namespaces, joined by a bridge in another one.

The machine's own network is not touched; what is here has names of its own and is gone afterwards.
"""

import itertools
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

import pytest

SECONDS: Final = 30.0
"""No administrative command takes longer; it is reached only by a failure."""
HERE = Path(__file__).parent


def ip(*arguments: str) -> None:
    run("ip", *arguments)


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def obstacle() -> str | None:
    """Why there can be no namespaces here."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "tc", "iptables") if shutil.which(tool) is None]
    if missing:
        return f"network namespaces need {' and '.join(missing)}; install iproute2 and iptables"
    name = _new_name()
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"no network namespaces here: {tried.stderr.strip()}"
    ip("netns", "delete", name)
    return None


def _new_name() -> str:
    """A name of our own, that tells by whom it is used."""
    return f"fe{os.getpid()}x{secrets.token_hex(2)}"


def sweep() -> None:
    """Remove what test runs left behind that were killed."""
    for name in re.findall(r"^fe\d+x\S+", run("ip", "netns", "list"), re.MULTILINE):
        if not Path(f"/proc/{name[2:].partition('x')[0]}").exists():
            # Another test run may be sweeping, too.
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=SECONDS, check=False)


@final
class Host:
    """One namespace with one interface, `eth0`, plugged into the bridge."""

    def __init__(self, network: "Network", number: int) -> None:
        self.namespace, self.port = f"{network.name}-{number}", f"port{number}"
        self.address = f"10.77.0.{number}"
        self._switch = network.switch

    @property
    def inside(self) -> tuple[str, ...]:
        """What starts a command there."""
        return ("ip", "netns", "exec", self.namespace)

    def run(self, *command: str) -> str:
        return run(*self.inside, *command)

    def cut(self) -> None:
        """Pull the plug at the far end: nobody is told, packets just go nowhere."""
        ip("-n", self._switch, "link", "set", self.port, "nomaster")

    def mend(self) -> None:
        ip("-n", self._switch, "link", "set", self.port, "master", "bridge")

    def limit(self, rate: str) -> None:
        """Let no more than this through, in either direction."""
        shape = ("root", "tbf", "rate", rate, "burst", "32kb", "latency", "400ms")
        self.run("tc", "qdisc", "add", "dev", "eth0", *shape)
        run("ip", "netns", "exec", self._switch, "tc", "qdisc", "add", "dev", self.port, *shape)

    def shaped(self) -> tuple[int, int]:
        """Bytes that left since `limit`, and how often they had to wait."""
        shown = self.run("tc", "-s", "qdisc", "show", "dev", "eth0")
        sent, waited = (re.findall(rf"{what} (\d+)", shown)[0] for what in ("Sent", "overlimits"))
        return int(sent), int(waited)

    def lose(self, share: float) -> None:
        """Drop this share of the packets that arrive, and of those that leave."""
        for chain in ("INPUT", "OUTPUT"):
            chance = ("-m", "statistic", "--mode", "random", "--probability", str(share))
            self.run("iptables", "-A", chain, *chance, "-j", "DROP")

    def lost(self) -> int:
        """Packets that were dropped so far."""
        lines = self.run("iptables", "-L", "-v", "-x", "-n").splitlines()
        return sum(int(line.split()[0]) for line in lines if "DROP" in line and "statistic" in line)


@final
class Network:
    """A bridge and the hosts on it; `close` removes them all, whatever state they are in."""

    def __init__(self) -> None:
        self.name = _new_name()
        self.switch = f"{self.name}-sw"
        self._numbers = itertools.count(1)
        self._made: list[str] = []
        self._helpers: list[subprocess.Popen[str]] = []
        self._namespace(self.switch)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")

    def host(self) -> Host:
        """A new host, plugged in by a cable."""
        host = self._new_host()
        cable = ("type", "veth", "peer", "name", "eth0", "netns", host.namespace)
        ip("-n", self.switch, "link", "add", host.port, *cable)
        self._plug_in(host)
        return host

    def far_host(self, delay: float) -> Host:
        """A new host from and to which every packet takes `delay` seconds."""
        host = self._new_host()
        # netem is not in every kernel; a process that holds packets back is.
        command = [sys.executable, str(HERE / "netns_delay.py"), self.switch, host.port, host.namespace]
        helper = subprocess.Popen([*command, str(delay)], stdout=subprocess.PIPE, text=True)
        self._helpers.append(helper)
        assert helper.stdout is not None and helper.stdout.readline() == "ready\n"
        self._plug_in(host)
        return host

    def close(self) -> None:
        for helper in self._helpers:
            helper.kill()
            helper.wait(SECONDS)
            if helper.stdout is not None:
                helper.stdout.close()
        for name in self._made:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=SECONDS, check=False)

    def _new_host(self) -> Host:
        host = Host(self, next(self._numbers))
        self._namespace(host.namespace)
        return host

    def _plug_in(self, host: Host) -> None:
        host.mend()
        ip("-n", self.switch, "link", "set", host.port, "up")
        ip("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
        ip("-n", host.namespace, "link", "set", "eth0", "up")

    def _namespace(self, name: str) -> None:
        ip("netns", "add", name)
        self._made.append(name)
        ip("-n", name, "link", "set", "lo", "up")


@pytest.fixture
def network() -> Iterator[Network]:
    """Hosts that are gone after the test."""
    reason = obstacle()
    if reason is not None:
        pytest.skip(reason)
    sweep()
    made = Network()
    try:
        yield made
    finally:
        made.close()
