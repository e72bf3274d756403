"""How central work grows with clients per round and with parameters; a plot beside the numbers."""

import time
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import harness
from benchmarks.harness import BLAS, free_memory, save
from benchmarks.rounds import Round
from fedecado.server.numerics import native, sample

mpl.use("Agg")

Point = dict[str, Any]
SHARE = 0.85
"""Of the memory that is free, for one point."""


def run(quick: bool) -> None:
    clients = (2, 5, 10) if quick else (2, 5, 10, 20, 50, 100)
    sizes = (100_000, 1_000_000) if quick else (100_000, 1_000_000, 5_000_000, 20_000_000)
    points = []
    for d in sizes:
        for a in clients:
            if _bytes(a, d) > SHARE * free_memory():
                print(f"a = {a}, d = {d:,}: skipped, needs {_bytes(a, d) / 2**30:.1f} GiB")
                continue
            points.append(_measure(a, d, repeats=3 if a * d > 10**8 else 7))
            line = "a = {a}, d = {d:,}: centre {centre:.4f} s, all {all:.4f} s".format(**points[-1])
            print(line, flush=True)
    save("scaling", {"points": points})
    _plot(points)


def _bytes(a: int, d: int) -> int:
    """End states and flows, displacements if they are written down; F, two centres and their like."""
    written = 0 if native.kernels() and d >= sample.LONG else a
    return 4 * (d * (2 * a + written + 12) + a * sample.width(d))


def _measure(a: int, d: int, repeats: int) -> Point:
    """Medians over rounds that follow each other; from the third on flows have memory to go to."""
    one, seconds = Round(a, d), []
    with BLAS.limit(limits=1):
        for _ in range(repeats + 2):
            began = time.perf_counter()
            one.start(a - 1)
            last = time.perf_counter()
            one.last_update()
            ready = time.perf_counter()
            one.finish()
            seconds.append((ready - last, time.perf_counter() - began))
    centre, whole = np.median(seconds[2:], axis=0)
    return {"a": a, "d": d, "centre": float(centre), "all": float(whole)}


def _plot(points: list[Point]) -> None:
    figure = Figure(figsize=(15, 5), layout="constrained")
    centre, whole, size = figure.subplots(1, 3, sharey=True)
    _lines(centre, points, "centre", over="a", each="d")
    _lines(whole, points, "all", over="a", each="d")
    _lines(size, points, "all", over="d", each="a")
    centre.set(title="Last update to new centre", xlabel="clients in the round, a", ylabel="seconds")
    whole.set(title="All central work of a round", xlabel="clients in the round, a")
    size.set(title="All central work of a round", xlabel="parameters, d")
    _slope(whole, points, "a", 1)
    _slope(whole, points, "a", 2)
    _slope(centre, points, "a", 1)
    _slope(size, points, "d", 1)
    for axes, over in ((centre, "a"), (whole, "a"), (size, "d")):
        places = sorted({point[over] for point in points})
        axes.set_xticks(places, [f"{place:,}" for place in places])
        axes.minorticks_off()
        axes.grid(visible=True, which="major", alpha=0.4)
        axes.legend(fontsize=8)
    path = harness.RESULTS / "scaling.png"
    figure.savefig(path, dpi=120)
    print(f"plot written to {path}")


def _lines(axes: Axes, points: list[Point], key: str, *, over: str, each: str) -> None:
    for value in sorted({point[each] for point in points}):
        line = [point for point in points if point[each] == value]
        axes.loglog([p[over] for p in line], [p[key] for p in line], "o-", label=f"{each} = {value:,}")


def _slope(axes: Axes, points: list[Point], over: str, power: int) -> None:
    """What growth with this power would look like, from the middle of the plot."""
    places = np.array(sorted({point[over] for point in points}), float)
    level = np.exp(np.mean(np.log([point["all"] for point in points])))
    line = level * (places / np.sqrt(places[0] * places[-1])) ** power
    name = over if power == 1 else f"{over}^{power}"
    axes.loglog(places, line, ":" if power == 1 else "--", color="grey", label=f"in proportion to {name}")
