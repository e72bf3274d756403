"""Contenders measured in turns within one run, so that a change of load meets all of them alike."""

import json
import os
import platform
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import ThreadpoolController, threadpool_info  # type: ignore[import-untyped] # ships no type information

BLAS = ThreadpoolController().select(user_api="blas")
CORES = len(os.sched_getaffinity(0))
RESULTS = Path(__file__).parent / "results"


@dataclass(slots=True)
class Contender:
    """Something to time: `run` is measured, `prepare` before it and `settle` after it are not.

    What it still does after `run` has to end in `settle`, or the next contender pays for it.
    """

    name: str
    run: Callable[[], object]
    prepare: Callable[[], object] = lambda: None
    settle: Callable[[], object] = lambda: None
    blas_threads: int = 1
    """The library holds BLAS at one thread; a rival that is one BLAS call gets all cores."""
    seconds: list[float] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    """What else was measured, as further columns."""

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))


SPINNING = 0.2
"""Seconds after which threads of BLAS have gone to sleep: they wait for more work at full speed first."""


def race(contenders: Sequence[Contender], repeats: int) -> None:
    """Run all contenders `repeats` times in turns, after one round that warms caches and memory.

    Each turn is in another order: who always came after the same one would pay for what that leaves behind, a
    core asleep or memory given back.
    """
    draw = random.Random(0)
    for turn in range(repeats + 1):
        for contender in draw.sample(contenders, len(contenders)):
            contender.prepare()
            with BLAS.limit(limits=contender.blas_threads):
                began = time.perf_counter()
                contender.run()
                taken = time.perf_counter() - began
            contender.settle()
            if contender.blas_threads > 1:
                time.sleep(SPINNING)
            if turn:
                contender.seconds.append(taken)


def pooled(sittings: Sequence[Sequence[Contender]]) -> Sequence[Contender]:
    """The contenders of several races, each with its times in all of them.

    Times scatter not only from turn to turn: a process that happens to lie badly in memory stays slower for
    as long as it lives. So what is short is raced by new processes a few times.
    """
    contenders = sittings[0]
    for sitting in sittings[1:]:
        for contender, again in zip(contenders, sitting, strict=True):
            contender.seconds += again.seconds
    return contenders


def ratio(contender: Contender, reference: Contender) -> tuple[float, float, float]:
    """Median of the turn-by-turn ratios to the reference, and their quartiles."""
    ratios = np.divide(contender.seconds, reference.seconds)
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return float(middle), float(low), float(high)


def report(name: str, contenders: Sequence[Contender], **facts: Any) -> None:
    """Print medians and ratios to the first contender, and write them to results/NAME.json."""
    reference, rows = contenders[0], []
    table = Table(title=f"{name}: {', '.join(f'{key} = {value}' for key, value in facts.items())}")
    noted = list(dict.fromkeys(note for contender in contenders for note in contender.notes))
    for column in ("", "median", "slowest", f"ratio to {reference.name}", "quartiles", *noted):
        table.add_column(column, justify="left" if not column else "right")
    for contender in contenders:
        middle, low, high = ratio(contender, reference)
        table.add_row(
            contender.name,
            f"{1e3 * contender.median:.1f} ms",
            f"{1e3 * max(contender.seconds):.1f} ms",
            f"{middle:.2f}",
            f"{low:.2f} to {high:.2f}",
            *(contender.notes.get(note, "") for note in noted),
        )
        rows.append(
            {
                "name": contender.name,
                "median_seconds": contender.median,
                "ratio": middle,
                "ratio_quartiles": [low, high],
                "seconds": contender.seconds,
                "notes": contender.notes,
            }
        )
    console = Console()
    console.width = max(console.width, 120)
    console.print(table)
    save(name, {"facts": facts, "contenders": rows})


def save(name: str, content: dict[str, Any]) -> Path:
    """Write results with what is known of the machine; returns the path."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({**content, "machine": machine()}, indent=2) + "\n")
    return path


def machine() -> dict[str, Any]:
    """What a reader needs to judge the numbers."""
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "processor": _processor(),
        "cores": CORES,
        "load": os.getloadavg(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": [
            {key: library.get(key) for key in ("internal_api", "version", "num_threads", "architecture")}
            for library in threadpool_info()
        ],
    }


def free_memory() -> int:
    """Bytes that can be had without swapping, for caches of files give way."""
    available = Path("/proc/meminfo").read_text(encoding="ascii").partition("MemAvailable:")[2]
    return 1024 * int(available.split()[0])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
