"""Server processes to measure: a coordinator, or the bare server that is its floor."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 20.0
"""Seconds for a process to end when it is asked to."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running process and where it listens."""

    address: str
    pid: int
    empty: int = 0
    """Bytes that were resident when it began to listen."""

    def reset_peak(self) -> None:
        """Count the peak of memory from here on."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    @property
    def peak(self) -> int:
        """The most bytes that were resident since the last reset."""
        return memory(self.pid, "VmHWM")

    @property
    def resident(self) -> int:
        """Bytes resident now."""
        return memory(self.pid)

    @property
    def cpu(self) -> float:
        """Seconds that all its threads have computed."""
        ticks = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def memory(pid: int, field: str = "VmRSS") -> int:
    """Bytes of a process: resident now, or another field of its status."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return 1024 * int(text.partition(f"{field}:")[2].split()[0])


@contextmanager
def coordinator(*flags: str, durable: bool = False) -> Iterator[Server]:
    """`fedecado coordinator` with these flags, in a folder of its own."""
    fixed = ("--bind", "127.0.0.1:0", "--log-level", "warning", "--linger", "none")
    kept = "--coordinator-durable" if durable else "--no-coordinator-durable"
    with started("fedecado.cli", "coordinator", *fixed, kept, *flags) as server:
        yield server


@contextmanager
def bare(workers: int, parameters: int, *flags: str) -> Iterator[Server]:
    """The floor: see `benchmarks.bare`."""
    with started("benchmarks.bare", str(workers), str(parameters), *flags) as server:
        yield server


@contextmanager
def started(module: str, *arguments: str) -> Iterator[Server]:
    """`python -m MODULE ARGUMENTS`, once it says in one line where it listens; ended on leaving."""
    with tempfile.TemporaryDirectory(prefix="fedecado-bench-") as folder:
        log = Path(folder, "stderr")
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env=environment(),
                text=True,
            )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise SystemExit(f"{module} did not start:\n{log.read_text()}")
            address = line.split()[-1]
            yield Server(address, process.pid, Server(address, process.pid).resident)
        except SystemExit:
            print(log.read_text()[-2000:], file=sys.stderr)
            raise
        finally:
            _end(process)
            process.stdout.close()


def environment() -> dict[str, str]:
    """For processes to measure: no settings of ours, and with bytecode, as installed packages have it."""
    left = {k: v for k, v in os.environ.items() if not k.startswith("FEDECADO_")}
    left.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**left, "PYTHONPATH": str(ROOT)}


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
