"""Rounds of ours and of a rival in turns: whole runs of processes, of which the median round counts."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Contender, report
from benchmarks.ours import our_rounds
from benchmarks.rivals.environment import environment, version
from benchmarks.rivals.watch import RivalError

CASES = ((2, 10_000), (10, 10_000), (2, 10_000_000))
"""Workers and parameters."""

Rounds = Callable[[Path], list[float]]
"""Runs a federation in the given folder; seconds of its rounds."""
RivalRounds = Callable[[Path, Path, int, int, int], list[float]]
"""The same for the scripts of an environment, a folder, workers, parameters and rounds."""


def against(name: str, package: str, rounds: RivalRounds, quick: bool) -> None:
    """No-op rounds and large ones against a framework that runs processes, too."""
    try:
        scripts = environment(name, package)
    except RivalError as error:
        print(f"{name}: skipped; {error}")
        return
    for workers, parameters in CASES[:1] if quick else CASES:
        case = f"{name}_{workers}_{parameters}"
        try:
            _case(case, (workers, parameters), scripts, package, rounds, quick)
        except RivalError as error:
            print(f"{case}: skipped; {error}")


def _case(
    name: str, sizes: tuple[int, int], scripts: Path, package: str, rounds: RivalRounds, quick: bool
) -> None:
    workers, parameters = sizes
    ours = 30 if quick else 200 if parameters < 1_000_000 else 20
    theirs, turns = (3, 1) if quick else (4, 2)
    runs: dict[str, Rounds] = {
        # A rival's server keeps a run in memory; ours, unless told not to, on disk.
        "fedecado": lambda folder: our_rounds(folder, workers, parameters, ours, durable=False),
        "fedecado, durable": lambda folder: our_rounds(folder, workers, parameters, ours, durable=True),
        f"{package} {version(scripts, package)}": lambda folder: rounds(
            scripts, folder, workers, parameters, theirs
        ),
    }
    compare(name, runs, turns, workers=workers, parameters=parameters)


def compare(name: str, runs: Mapping[str, Rounds], turns: int, **facts: Any) -> None:
    """Run each in its turn, in a new folder; ratios are to the first one, which is ours."""
    contenders = [Contender(what, lambda: None) for what in runs]
    for _ in range(turns):
        for contender, rounds in zip(contenders, runs.values(), strict=True):
            try:
                contender.seconds.append(_median(rounds))
            except RivalError as error:
                print(f"{name}: {contender.name} is run once more; {error}")
                contender.seconds.append(_median(rounds))
    report(name, contenders, per="round", **facts)


def _median(rounds: Rounds) -> float:
    with tempfile.TemporaryDirectory(prefix="fedecado-bench-", ignore_cleanup_errors=True) as folder:
        return float(np.median(rounds(Path(folder))))
