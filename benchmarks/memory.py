"""A coordinator's memory over 10,000 rounds of 100 workers, of whom some leave and come back all the time.

Where that takes longer it ends after twenty minutes. Then the memory of two worker processes over as many.
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.fleet import Fleet
from benchmarks.harness import save
from benchmarks.ours import rounds_closed, worker
from benchmarks.servers import coordinator, memory

PARAMETERS = 1000
WORKERS = 100
PATIENCE = 1200.0


def run(quick: bool) -> None:
    rounds, every = (200, 20) if quick else (10_000, 100)
    _of_the_coordinator(rounds, every)
    _of_workers(rounds, every)


def _of_the_coordinator(rounds: int, every: int) -> None:
    flags = ("--rounds", "1000000", "--rounds-min-clients", str(WORKERS))
    until = time.monotonic() + PATIENCE
    with Fleet(coordinator(*flags, durable=True), WORKERS, PARAMETERS) as fleet:
        fleet.join(model=True)
        at, resident = [0], [fleet.server.resident]
        while at[-1] < rounds and time.monotonic() < until:
            fleet.work_until(at[-1] + every)
            fleet.churn(1 + WORKERS // 20)
            at.append(at[-1] + every)
            resident.append(fleet.server.resident)
            _progress(at, resident)
    _report("memory", at, resident, WORKERS)


def _of_workers(rounds: int, every: int) -> None:
    """Real processes; what they have together, for one may hold what the other let go."""
    flags = ("--rounds", "1000000", "--rounds-min-clients", "2")
    until = time.monotonic() + PATIENCE
    at, resident = [0], [0]
    with (
        tempfile.TemporaryDirectory(prefix="fedecado-bench-") as folder,
        coordinator(*flags) as server,
        worker(server.address, 0, PARAMETERS, Path(folder)) as first,
        worker(server.address, 1, PARAMETERS, Path(folder)) as second,
    ):
        while at[-1] < rounds and time.monotonic() < until:
            time.sleep(0.05)
            if (closed := rounds_closed(server.address)) >= at[-1] + every:
                at.append(closed)
                resident.append(memory(first.pid) + memory(second.pid))
                _progress(at, resident)
    _report("memory_workers", at[1:], resident[1:], 2)


def _progress(at: list[int], resident: list[int]) -> None:
    if len(at) % 10 == 0:
        print(f"round {at[-1]:,}: {resident[-1] / 2**20:.1f} MiB", flush=True)


def _report(name: str, at: list[int], resident: list[int], workers: int) -> None:
    slope, noise = _slope(np.asarray(at), np.asarray(resident))
    print(
        f"{name}: {resident[-1] / 2**20:.1f} MiB after {at[-1]:,} rounds, "
        f"{max(resident) / 2**20:.1f} at most; "
        f"in the second half {slope:+.0f} bytes a round, give or take {noise:.0f}"
    )
    facts = {"workers": workers, "parameters": PARAMETERS, "page": os.sysconf("SC_PAGE_SIZE")}
    content = {"rounds": at, "resident_bytes": resident, "slope": slope, "slope_error": noise}
    save(name, {"facts": facts, **content})


def _slope(at: npt.NDArray[np.int64], resident: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Bytes per round over the second half, and twice the standard error of that.

    What is resident now is much like what was a moment ago, so there are fewer looks at it than numbers:
    the error is that of a series whose neighbours are alike (AR(1)).
    """
    half = len(at) // 2
    x, y = at[half:] - at[half:].mean(), resident[half:] - resident[half:].mean()
    slope = float(x @ y / (x @ x))
    left = y - slope * x
    alike = min(0.95, max(0.0, float(left[1:] @ left[:-1] / max(1e-9, left @ left))))
    variance = float(left @ left) / max(1, len(x) - 2) * (1 + alike) / (1 - alike)
    return slope, 2 * float(np.sqrt(variance / (x @ x)))
