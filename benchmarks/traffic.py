"""What a server spends on a timed transfer: processor time, and memory beyond what it had without a model."""

from benchmarks.harness import Contender
from benchmarks.servers import Server


class Traffic:
    """Collects over all turns; `begin` and `end` stand around what is timed."""

    def __init__(self, nbytes: int, model: int) -> None:
        """So many bytes are sent, of models of such a size."""
        self._nbytes, self._model = nbytes, model
        self._cpu: list[float] = []
        self._peaks: list[int] = []
        self._since = 0.0

    def begin(self, server: Server) -> None:
        self._since = server.cpu
        server.reset_peak()

    def end(self, server: Server) -> None:
        self._cpu.append(server.cpu - self._since)
        self._peaks.append(server.peak - server.empty)

    def note(self, contender: Contender) -> None:
        """Put what was found beside the contender's time."""
        gigabytes = self._nbytes / 1e9
        contender.notes["GB/s"] = f"{gigabytes / contender.median:.2f}"
        contender.notes["server CPU s/GB"] = f"{sum(self._cpu) / len(self._cpu) / gigabytes:.2f}"
        contender.notes["memory in models"] = f"{max(self._peaks) / self._model:.1f}"
