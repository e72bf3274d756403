"""What a server spends on a timed transfer: processor time, and memory beyond what it held before."""

from benchmarks.harness import Contender
from benchmarks.servers import Server


class Traffic:
    """Collects over all turns; `begin` and `end` stand around what is timed."""

    def __init__(self, nbytes: int, model: int) -> None:
        self._nbytes, self._model = nbytes, model
        self._cpu: list[float] = []
        self._peaks: list[int] = []
        self._before = 0
        self._since = 0.0

    def begin(self, server: Server) -> None:
        self._since, self._before = server.cpu, server.resident
        server.reset_peak()

    def end(self, server: Server) -> None:
        self._cpu.append(server.cpu - self._since)
        self._peaks.append(server.peak - self._before)

    def note(self, contender: Contender) -> None:
        """Put what was found beside the contender's time."""
        gigabytes = self._nbytes / 1e9
        contender.notes["GB/s"] = f"{gigabytes / contender.median:.2f}"
        contender.notes["server CPU s/GB"] = f"{sum(self._cpu) / len(self._cpu) / gigabytes:.2f}"
        contender.notes["memory in models"] = f"{max(self._peaks) / self._model:.1f}"
