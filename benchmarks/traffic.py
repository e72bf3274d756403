"""What a server spends on a timed transfer: processor time, and memory beyond what it had without a model."""

from benchmarks.harness import Contender
from benchmarks.servers import Server

SPARE = 2
"""Models of memory that a transfer may take beside the vectors under way."""


class Traffic:
    """Collects over all turns; `begin` and `end` stand around what is timed, `settled` after all else."""

    def __init__(self, nbytes: int, model: int, most: float | None = None) -> None:
        """So many bytes are sent, of models of such a size; memory should stay within `most` of them."""
        self._nbytes, self._model, self._most = nbytes, model, most
        self._cpu: list[float] = []
        self._peaks: list[int] = []
        self._rounds: list[int] = []
        self._since = 0.0

    def begin(self, server: Server) -> None:
        self._since = server.cpu
        server.reset_peak()

    def end(self, server: Server) -> None:
        self._cpu.append(server.cpu - self._since)
        self._peaks.append(server.peak - server.empty)

    def settled(self, server: Server) -> None:
        """What the transfer led to is done, too."""
        self._rounds.append(server.peak - server.empty)

    def note(self, contender: Contender) -> None:
        """Put what was found beside the contender's time."""
        gigabytes, peak = self._nbytes / 1e9, max(self._peaks) / self._model
        warm = self._cpu[1:]  # as with the times: the first turn pays for fresh memory
        contender.notes["GB/s"] = f"{gigabytes / contender.median:.2f}"
        contender.notes["server CPU s/GB"] = f"{sum(warm) / len(warm) / gigabytes:.2f}"
        contender.notes["memory in models"] = f"{peak:.1f}"
        if self._most is not None:
            said = "holds" if peak <= self._most else "missed"
            contender.notes["memory in models"] += f" of {self._most:.1f}: {said}"
        if self._rounds:
            contender.notes["whole round"] = f"{max(self._rounds) / self._model:.1f}"
