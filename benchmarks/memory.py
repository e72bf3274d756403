"""A coordinator's memory over 10,000 rounds of 100 workers, of whom some leave and come back all the time.

On a slow machine it ends after ten minutes with fewer.
"""

import os
import time

import numpy as np
import numpy.typing as npt

from benchmarks.fleet import Fleet
from benchmarks.harness import save
from benchmarks.servers import coordinator

PARAMETERS = 1000
WORKERS = 100
PATIENCE = 600.0


def run(quick: bool) -> None:
    rounds, every = (200, 20) if quick else (10_000, 100)
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
            if not quick:
                print(f"round {at[-1]:,}: {resident[-1] / 2**20:.1f} MiB", flush=True)
    slope, noise = _slope(np.asarray(at), np.asarray(resident))
    print(
        f"memory: {resident[-1] / 2**20:.1f} MiB after {at[-1]:,} rounds, "
        f"{max(resident) / 2**20:.1f} at most; "
        f"in the second half {slope:+.0f} bytes a round, give or take {noise:.0f}"
    )
    facts = {"workers": WORKERS, "parameters": PARAMETERS, "page": os.sysconf("SC_PAGE_SIZE")}
    content = {"rounds": at, "resident_bytes": resident, "slope": slope, "slope_error": noise}
    save("memory", {"facts": facts, **content})


def _slope(at: npt.NDArray[np.int64], resident: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Bytes per round over the second half, and twice the standard error of that."""
    half = len(at) // 2
    x, y = at[half:] - at[half:].mean(), resident[half:] - resident[half:].mean()
    slope = float(x @ y / (x @ x))
    left = float(np.square(y - slope * x).sum() / max(1, len(x) - 2))
    return slope, 2 * float(np.sqrt(left / (x @ x)))
