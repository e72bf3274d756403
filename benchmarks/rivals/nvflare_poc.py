"""NVFlare in its proof-of-concept mode on this machine: a server, clients and an admin as processes."""

import os
from pathlib import Path

from benchmarks.rivals.watch import durations, running

JOB = Path(__file__).parent / "inside" / "nvflare_job.py"


def nvflare_rounds(scripts: Path, folder: Path, clients: int, parameters: int, rounds: int) -> list[float]:
    """Seconds of each round, as the first client sees them; the first round is left out."""
    times, log = folder / "times", folder / "job.log"
    own = {
        **os.environ,
        "HOME": str(folder),
        "NVFLARE_POC_WORKSPACE": str(folder / "poc"),
        "PATH": f"{scripts}:{os.environ['PATH']}",
    }
    sizes = [str(clients), str(parameters), str(rounds)]
    with running([scripts / "python", JOB, *sizes, times], log, own) as process:
        found = durations(times, rounds, within=300.0 + 120.0 * rounds, log=log)
        process.wait(300.0)  # the job stops its services itself
    return found
